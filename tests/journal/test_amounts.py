"""Amounts as people write them; ambiguous ones are refused."""

from decimal import Decimal

import pytest

from weft.core.errors import UsageError
from weft.journal.amounts import (
    parse_money,
    parse_rate,
    parse_seconds,
    parse_tokens,
    show_hours,
    show_minutes,
    show_money,
    show_rate,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("47m", 2820), ("1.5h", 5400), ("1h30m", 5400), ("1h 30min", 5400), ("90s", 90), ("2 hours", 7200), ("0m", 0)],
)
def test_time(text: str, seconds: int) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["47", "", "m", "-5m", "1h30", "5 parsecs", "1,5h", "nan", "1e3s"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match=r"write 47m, 1\.5h or 1h30m"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "amount"),
    [("25.30", "25.30"), ("$25.30", "25.30"), ("1,256", "1256"), ("1,256.50", "1256.50"), (".5", "0.5")],
)
def test_money(text: str, amount: str) -> None:
    assert parse_money(text, "$") == Decimal(amount)


@pytest.mark.parametrize("text", ["25,30", "-1", "NaN", "Infinity", "1e5", "", "€5", "1,25,6"])
def test_what_is_no_money(text: str) -> None:
    """25,30 means 25.30 in some countries and is invalid in others."""
    with pytest.raises(UsageError, match="not an amount of money"):
        parse_money(text, "$")


def test_a_sign_may_follow() -> None:
    assert parse_money("25.30 €", "€") == Decimal("25.30")


def test_rates() -> None:
    assert parse_rate("50/h", "$", "h") == 50
    assert parse_rate("$0.20/h", "$", "h") == Decimal("0.20")
    assert parse_rate("3/M", "$", "M") == 3


@pytest.mark.parametrize(("text", "unit"), [("50", "h"), ("50/day", "h"), ("3/h", "M"), ("3/M", "h"), ("/h", "h")])
def test_a_rate_needs_its_unit(text: str, unit: str) -> None:
    with pytest.raises(UsageError):
        parse_rate(text, "$", unit)


def test_tokens() -> None:
    assert [parse_tokens(text) for text in ("120000", "120k", "1.2M")] == [120_000, 120_000, 1_200_000]
    with pytest.raises(UsageError, match="not a number of tokens"):
        parse_tokens("many")


def test_shown() -> None:
    assert [show_minutes(s) for s in (0, 42, 2820, 5400, 7199, 7500)] == [
        "0 min",
        "42 s",
        "47 min",
        "90 min",
        "2 h 00 min",
        "2 h 05 min",
    ]
    assert [show_hours(s) for s in (120, 5400, 89280)] == ["2 min", "1.5 h", "24.8 h"]
    assert [show_money(Decimal(a), "$") for a in ("39.16667", "0.005", "0.0031", "-2", "1256", "0")] == [
        "$39.17",
        "$0.0050",
        "$0.0031",
        "-$2.00",
        "$1,256.00",
        "$0.00",
    ]
    assert [show_rate(Decimal(a), "$", "h") for a in ("50", "50.00", "0.2", "0.20", "0.125")] == [
        "$50/h",
        "$50/h",
        "$0.20/h",
        "$0.20/h",
        "$0.125/h",
    ]
