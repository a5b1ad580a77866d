"""The checkpoints of a plan, at which the journal stops and asks before more is spent."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from weft.core.errors import UsageError

from .amounts import parse_money, parse_seconds, show_minutes, show_money
from .costs import Account
from .records import GoOn, Plan

BEYOND = Decimal("0.25")
"""Above the plan there is a checkpoint after each further quarter of the plan."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was reached and not answered."""

    text: str


def make_plan(text: str | None, ask_at: Sequence[str], currency: str) -> Plan:
    """Return the plan of `--plan 30m/25.30 --ask-at 15m --ask-at 80%`; the time or the money may be missing."""
    seconds, limit = _halves(text, currency)
    if seconds == 0 or limit == 0:
        raise UsageError("an empty plan has no checkpoints: omit --plan, or give a time or an amount above 0")
    ask_seconds: list[int] = []
    ask_money: list[Decimal] = []
    for text in ask_at:
        if text.endswith("%"):
            share = parse_money(text[:-1], "%") / 100
            ask_seconds += [] if seconds is None else [max(1, round(seconds * share))]
            ask_money += [] if limit is None else [limit * share]
        elif text.isdecimal():
            raise UsageError(f"--ask-at {text}: time or money? write {text}m, {text}.00 or {text}%")
        elif text[-1:].isalpha():
            ask_seconds.append(parse_seconds(text))
        else:
            ask_money.append(parse_money(text, currency))
    return Plan(seconds, limit, tuple(sorted(ask_seconds)), tuple(sorted(ask_money)))


def _halves(text: str | None, currency: str) -> tuple[int | None, Decimal | None]:
    seconds, money = None, None
    if text is not None and text.isdecimal():
        raise UsageError(f"a plan of {text}: time or money? write {text}m, {text}.00 or both, as in 30m/25.30")
    for part in text.split("/") if text is not None else ():
        if part[-1:].isalpha() and seconds is None:
            seconds = parse_seconds(part)
        elif not part[-1:].isalpha() and money is None:
            money = parse_money(part, currency)
        else:
            raise UsageError(f"{text!r} is not a plan: write the time, the money or both, as in 30m/25.30")
    return seconds, money


def reached(plan: Plan, account: Account, go_on: GoOn | None, currency: str) -> tuple[Checkpoint, ...]:
    """Return the highest checkpoints of time and of money that were passed since the last answer."""
    found = []
    answered = go_on.seconds if go_on else -1
    at = _highest(plan.seconds, plan.ask_seconds, account.seconds)
    if at is not None and at > answered:
        of = "" if plan.seconds is None else f" of {show_minutes(plan.seconds)} planned"
        found.append(Checkpoint(f"spent {show_minutes(account.seconds)}{of}"))
    answered_money = go_on.money if go_on else Decimal(-1)
    at_money = _highest(plan.money, plan.ask_money, account.money)
    if at_money is not None and at_money > answered_money:
        of = "" if plan.money is None else f" of {show_money(plan.money, currency)} planned"
        found.append(Checkpoint(f"spent {show_money(account.money, currency)}{of}"))
    return tuple(found)


def next_stop(plan: Plan, account: Account, currency: str) -> str:
    """Return the next checkpoint of time and of money as text; empty without a plan."""
    parts = []
    seconds = _next(plan.seconds, plan.ask_seconds, account.seconds)
    money = _next(plan.money, plan.ask_money, account.money)
    if seconds is not None:
        parts.append(show_minutes(int(seconds)))
    if money is not None:
        parts.append(show_money(money, currency))
    return " or ".join(parts)


def _highest(limit: Decimal | int | None, asked: Sequence[Decimal | int], spent: Decimal | int) -> Decimal | None:
    """Return the last checkpoint that is passed."""
    if limit is not None and spent >= limit:
        return _beyond(limit, spent)
    return max((Decimal(stop) for stop in asked if stop <= spent), default=None)


def _next(limit: Decimal | int | None, asked: Sequence[Decimal | int], spent: Decimal | int) -> Decimal | None:
    """Return the first checkpoint that is not passed."""
    if limit is not None and spent >= limit:
        return _beyond(limit, spent) + limit * BEYOND
    return min((Decimal(stop) for stop in (*asked, limit) if stop is not None and stop > spent), default=None)


def _beyond(limit: Decimal | int, spent: Decimal | int) -> Decimal:
    """Return the last checkpoint at or below `spent`, counted from the limit in steps."""
    step = limit * BEYOND
    return limit + (spent - limit) // step * step
