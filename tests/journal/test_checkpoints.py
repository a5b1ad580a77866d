"""Plans stop at their checkpoints, once each, and again above the plan."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from weft.core.errors import UsageError
from weft.journal.checkpoints import make_plan, next_stop, reached
from weft.journal.costs import Account, CostLine
from weft.journal.records import GoOn, Kind, Plan

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def spent(minutes: int, rate: int = 60) -> Account:
    """Return an account at a rate of 60 per hour, so that a minute costs 1."""
    return Account((CostLine(Kind.ENGINEER, "", 60 * minutes, Decimal(rate)),))


def answered(minutes: int) -> GoOn:
    return GoOn(1, NOW, 60 * minutes, Decimal(minutes), "")


def texts(plan: Plan, minutes: int, go_on: GoOn | None = None) -> list[str]:
    return [stop.text for stop in reached(plan, spent(minutes), go_on, "$")]


def test_plans() -> None:
    assert make_plan("30m/25.30", (), "$") == Plan(1800, Decimal("25.30"))
    assert make_plan("25.30", (), "$") == Plan(None, Decimal("25.30"))
    assert make_plan("$25.30/1h30m", (), "$") == Plan(5400, Decimal("25.30"))
    assert make_plan(None, (), "$").empty
    asked = make_plan("30m/20", ["15m", "5.00", "80%"], "$")
    assert asked.ask_seconds == (900, 1440) and asked.ask_money == (Decimal(5), Decimal(16))


@pytest.mark.parametrize("text", ["30m/40m", "5/6", "30m/5/6", "soon", "0m", "0.00", "", "30"])
def test_what_is_no_plan(text: str) -> None:
    with pytest.raises(UsageError):
        make_plan(text, (), "$")


def test_a_number_without_a_unit_is_ambiguous() -> None:
    with pytest.raises(UsageError, match=r"write 30m, 30\.00 or both"):
        make_plan("30", (), "$")
    with pytest.raises(UsageError, match=r"write 15m, 15\.00 or 15%"):
        make_plan("30m", ["15"], "$")


def test_nothing_before_the_first_stop() -> None:
    plan = make_plan("30m", ["50%"], "$")
    assert texts(plan, 14) == []
    assert next_stop(plan, spent(14), "$") == "15 min"


def test_each_stop_asks_until_it_is_answered() -> None:
    plan = make_plan("30m", ["50%"], "$")
    assert texts(plan, 15) == ["spent 15 min of 30 min planned"]
    assert texts(plan, 20, answered(15)) == []
    assert texts(plan, 30, answered(20)) == ["spent 30 min of 30 min planned"]


def test_past_the_plan_it_asks_every_quarter() -> None:
    plan = make_plan("40m", (), "$")
    assert texts(plan, 49, answered(40)) == []
    assert texts(plan, 50, answered(49)) == ["spent 50 min of 40 min planned"]
    assert texts(plan, 59, answered(50)) == []
    assert next_stop(plan, spent(52), "$") == "60 min"


def test_time_and_money_are_watched_each() -> None:
    plan = make_plan("30m/10", (), "$")
    assert texts(plan, 12) == ["spent $12.00 of $10.00 planned"]
    assert texts(plan, 31) == ["spent 31 min of 30 min planned", "spent $31.00 of $10.00 planned"]
    assert next_stop(plan, spent(12), "$") == "30 min or $12.50"


def test_stops_without_a_plan() -> None:
    plan = make_plan(None, ["10m", "20m"], "$")
    assert texts(plan, 25, answered(12)) == ["spent 25 min"]
    assert texts(plan, 25, answered(25)) == []
    assert next_stop(plan, spent(25), "$") == ""
