"""Compare booked sums with the rates: each sum that is wrong is reported with the correct figure."""

from dataclasses import dataclass
from decimal import Decimal

from .amounts import show_minutes, show_money, show_rate
from .costs import Account, CostLine

_HALF_A_CENT = Decimal("0.005")
"""Tolerance for booked amounts, which are rounded."""


SUM = "the sum"


@dataclass(frozen=True)
class WrongSum:
    """A booked amount that is wrong."""

    what: str
    booked: Decimal
    right: Decimal
    text: str


def difference(actual: Decimal, planned: Decimal, shown: str) -> str:
    """Return `$14.17 (56 %) over`; `shown` is the size of the difference as text."""
    if actual == planned:
        return "as planned"
    share = f" ({abs(actual - planned) / planned * 100:.0f} %)" if planned else ""
    return f"{shown}{share} {'over' if actual > planned else 'under'}"


def money_against(actual: Decimal, planned: Decimal, currency: str) -> str:
    return difference(actual, planned, show_money(abs(actual - planned), currency))


def time_against(actual: int, planned: int) -> str:
    return difference(Decimal(actual), Decimal(planned), show_minutes(abs(actual - planned)))


def agrees(booked: Decimal, right: Decimal | None) -> bool:
    """Return whether an amount agrees with its rate to the cent; without a rate it always does."""
    return right is None or abs(booked - right) <= _HALF_A_CENT


def wrong_sums(account: Account, currency: str) -> tuple[WrongSum, ...]:
    """Return each line that is not quantity times rate, then a wrong sum."""
    found = [wrong for line in account.lines if (wrong := _wrong_line(line, currency)) is not None]
    total = _wrong_total(account, currency)
    return tuple(found if total is None else [*found, total])


def _wrong_line(line: CostLine, currency: str) -> WrongSum | None:
    booked, right = line.booked, line.computed
    if booked is None or right is None or line.rate is None or agrees(booked, right):
        return None
    text = (
        f"{line.label}, {line.shown_quantity}: booked {show_money(booked, currency)}, "
        f"the rate of {show_rate(line.rate, currency, line.unit)} gives {show_money(right, currency)}: "
        f"off by {show_money(abs(booked - right), currency)}"
    )
    return WrongSum(line.label, booked, right, text)


def _wrong_total(account: Account, currency: str) -> WrongSum | None:
    booked, right = account.booked_sum, account.money
    # The parts were rounded before they were added.
    if booked is None or account.unpriced or abs(booked - right) <= _HALF_A_CENT * max(1, len(account.lines)):
        return None
    text = f"the sum: booked {show_money(booked, currency)}, should be {show_money(right, currency)}"
    parts = [line.booked for line in account.lines if line.booked is not None]
    if len(parts) == len(account.lines) and sum(parts) != booked:
        text += f" (the booked parts add to {show_money(sum(parts, Decimal(0)), currency)})"
    text += f": off by {show_money(abs(booked - right), currency)}"
    return WrongSum(SUM, booked, right, text + _against_plan(account, currency))


def _against_plan(account: Account, currency: str) -> str:
    plan, parts = account.plan, []
    if plan.money is not None:
        parts.append(
            f"{show_money(account.money, currency)} against a plan of {show_money(plan.money, currency)}, "
            f"{money_against(account.money, plan.money, currency)}"
        )
    if plan.seconds is not None:
        parts.append(
            f"{show_minutes(account.seconds)} against {show_minutes(plan.seconds)}, "
            f"{time_against(account.seconds, plan.seconds)}"
        )
    return "".join(f"; {part}" for part in parts)
