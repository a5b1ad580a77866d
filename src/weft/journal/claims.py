"""Booked sums held against the rates: a log that adds up wrongly is told so, with the right figure."""

from dataclasses import dataclass
from decimal import Decimal

from .amounts import show_minutes, show_money, show_rate
from .costs import Account, CostLine

_HALF_A_CENT = Decimal("0.005")
"""Booked amounts are rounded; no more than this is forgiven."""


SUM = "the sum"


@dataclass(frozen=True)
class WrongSum:
    """An amount somebody wrote down that is not what it should be."""

    what: str
    booked: Decimal
    right: Decimal
    text: str


def difference(actual: Decimal, planned: Decimal, shown: str) -> str:
    """`$14.17 (56 %) over`; `shown` is the size of the difference as people read it."""
    if actual == planned:
        return "as planned"
    share = f" ({abs(actual - planned) / planned * 100:.0f} %)" if planned else ""
    return f"{shown}{share} {'over' if actual > planned else 'under'}"


def money_against(actual: Decimal, planned: Decimal, currency: str) -> str:
    return difference(actual, planned, show_money(abs(actual - planned), currency))


def time_against(actual: int, planned: int) -> str:
    return difference(Decimal(actual), Decimal(planned), show_minutes(abs(actual - planned)))


def agrees(booked: Decimal, right: Decimal | None) -> bool:
    """Whether an amount is what its rate gives, to the cent; without a rate nobody can say otherwise."""
    return right is None or abs(booked - right) <= _HALF_A_CENT


def wrong_sums(account: Account, currency: str) -> tuple[WrongSum, ...]:
    """Each line that is not quantity times rate, then a sum that does not follow."""
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
    # The parts were rounded before somebody added them.
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
