"""Costs: quantities times rates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from .amounts import show_hours, show_minutes, show_tokens
from .records import Kind, Plan, Rate


@dataclass(frozen=True)
class CostLine:
    """One line of an account."""

    kind: Kind
    name: str
    quantity: int
    """Seconds, or tokens."""
    rate: Decimal | None
    """Price per hour, or per million tokens; None if no rate is set."""
    booked: Decimal | None = None
    origin: str = ""
    """Source of the quantity: the clock, a machine's name, or empty if it was booked."""

    @property
    def computed(self) -> Decimal | None:
        """Return quantity · rate, exactly."""
        per = 1_000_000 if self.kind is Kind.TOKENS else 3600
        return None if self.rate is None else self.quantity * self.rate / per

    @property
    def amount(self) -> Decimal | None:
        """Return the cost by the rate, else the booked amount; None if neither is known."""
        return self.booked if self.computed is None else self.computed

    @property
    def label(self) -> str:
        return named(self.kind, self.name)

    @property
    def unit(self) -> str:
        return "M" if self.kind is Kind.TOKENS else "h"

    @property
    def shown_quantity(self) -> str:
        show = {Kind.ENGINEER: show_minutes, Kind.GPU: show_hours, Kind.TOKENS: show_tokens}[self.kind]
        return show(self.quantity)


@dataclass(frozen=True)
class Account:
    """Lines, and the plan they are compared with."""

    lines: tuple[CostLine, ...] = ()
    plan: Plan = field(default_factory=Plan)
    booked_sum: Decimal | None = None

    @property
    def seconds(self) -> int:
        """Return the working time of people, which a plan in minutes limits."""
        return sum(line.quantity for line in self.lines if line.kind is Kind.ENGINEER)

    @property
    def gpu_seconds(self) -> int:
        return sum(line.quantity for line in self.lines if line.kind is Kind.GPU)

    @property
    def tokens(self) -> int:
        return sum(line.quantity for line in self.lines if line.kind is Kind.TOKENS)

    @property
    def money(self) -> Decimal:
        """Return the sum of the lines that have a price: a lower bound of what was spent."""
        return sum((line.amount for line in self.lines if line.amount is not None), Decimal(0))

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Return the names of what has no price, each once."""
        return tuple(dict.fromkeys(line.label for line in self.lines if line.amount is None and line.quantity))


def named(kind: Kind, name: str) -> str:
    word = "GPU" if kind is Kind.GPU else str(kind)
    return f"{word} {name}" if name else word


def rate_at(rates: Sequence[Rate], kind: Kind, name: str, at: datetime) -> Decimal | None:
    """Return the rate that is valid at a moment; before the first rate was set, the first.

    A new rate does not change past costs, and work from before the first rate still has a price.
    """
    for wanted in dict.fromkeys((name, "")):
        known = sorted((r for r in rates if r.kind is kind and r.name == wanted), key=lambda rate: rate.since)
        if known:
            return next((rate.amount for rate in reversed(known) if rate.since <= at), known[0].amount)
    return None


def together(accounts: Iterable[Account]) -> Account:
    """Return the cumulative account: equal lines and the plans are added."""
    accounts = tuple(accounts)
    sums: dict[tuple[Kind, str, Decimal | None, bool], int] = {}
    booked: dict[tuple[Kind, str, Decimal | None, bool], Decimal] = {}
    for line in (line for account in accounts for line in account.lines):
        # Lines without a rate count as booked; lines with neither are kept apart.
        key = (line.kind, line.name, line.rate, line.rate is None and line.booked is not None)
        sums[key] = sums.get(key, 0) + line.quantity
        if key[3] and line.booked is not None:
            booked[key] = booked.get(key, Decimal(0)) + line.booked
    lines = tuple(
        CostLine(kind, name, quantity, rate, booked.get((kind, name, rate, flag)))
        for (kind, name, rate, flag), quantity in sums.items()
    )
    seconds = [account.plan.seconds for account in accounts if account.plan.seconds is not None]
    money = [account.plan.money for account in accounts if account.plan.money is not None]
    return Account(lines, Plan(sum(seconds) if seconds else None, sum(money, Decimal(0)) if money else None))
