"""Amounts as people write and read them: 47m, 1.5h, $25.30, 50/h, 3/M, 120k."""

import re
from decimal import ROUND_HALF_UP, Decimal

from weft.core.errors import UsageError

_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_PIECE = re.compile(rf"({_NUMBER})\s*(hours?|h|minutes?|mins?|m|seconds?|s)\s*", re.IGNORECASE)
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_MONEY = re.compile(rf"(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|{_NUMBER})")
_TOKENS = {"": 1, "k": 1000, "m": 1_000_000}
_CENT = Decimal("0.01")


def parse_seconds(text: str) -> int:
    """Parse `47m`, `1.5h`, `1h30m` or `90s`. A number without a unit is ambiguous and refused."""
    pieces = list(_PIECE.finditer(text.strip()))
    if not pieces or "".join(piece[0] for piece in pieces) != text.strip():
        raise UsageError(f"{text!r} is not a duration: write 47m, 1.5h or 1h30m")
    return round(sum(Decimal(piece[1]) * _SECONDS[piece[2][0].lower()] for piece in pieces))


def parse_money(text: str, currency: str) -> Decimal:
    """Parse `25.30`, `$25.30` or `1,256`. `25,30` is ambiguous and refused."""
    bare = text.strip().removeprefix(currency).removesuffix(currency).strip()
    if not _MONEY.fullmatch(bare):
        raise UsageError(f"{text!r} is not an amount of money: write 25.30 or {currency}25.30")
    return Decimal(bare.replace(",", ""))


def parse_rate(text: str, currency: str, unit: str) -> Decimal:
    """Parse `50/h` with unit h, or `3/M` with unit M (a million tokens)."""
    amount, sign, per = text.partition("/")
    if not sign or per.strip() not in {"h": ("h", "hr", "hour"), "M": ("M", "Mtok", "1M")}[unit]:
        raise UsageError(f"{text!r} is not a rate: write it as {'50/h' if unit == 'h' else '3/M, per million tokens'}")
    return parse_money(amount, currency)


def parse_tokens(text: str) -> int:
    """Parse `120000`, `120k` or `1.2M`."""
    match = re.fullmatch(rf"({_NUMBER})\s*([kM]?)", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a number of tokens: write 120000, 120k or 1.2M")
    return int(Decimal(match[1]) * _TOKENS[match[2].lower()])


def cents(amount: Decimal) -> Decimal:
    """Round to the cent; an amount below a cent keeps four places, so that it is not shown as zero."""
    places = Decimal("0.0001") if 0 < abs(amount) < _CENT else _CENT
    return amount.quantize(places, ROUND_HALF_UP)


def show_money(amount: Decimal, currency: str) -> str:
    return f"{'-' if amount < 0 else ''}{currency}{cents(abs(amount)):,}"


def show_rate(amount: Decimal, currency: str, unit: str) -> str:
    """Return `$50/h` or `$0.20/h`."""
    whole = amount == amount.to_integral_value()
    # A rate may be finer than a cent; otherwise it keeps two places.
    figures = f"{amount:,.0f}" if whole else f"{max(amount, amount.quantize(_CENT), key=_places):,}"
    return f"{currency}{figures}/{unit}"


def _places(amount: Decimal) -> int:
    exponent = amount.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def show_minutes(seconds: int) -> str:
    """Return `42 s`, `47 min` or `2 h 05 min`."""
    if 0 < seconds < 60:
        return f"{seconds} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 2:
        return f"{60 * hours + minutes} min"
    return f"{hours} h {minutes:02} min"


def show_hours(seconds: int) -> str:
    """Return `1.5 h`, the unit in which GPUs are rented; a short time in minutes."""
    if seconds < 360:
        return show_minutes(seconds)
    return f"{Decimal(seconds) / 3600:.2f}".rstrip("0").rstrip(".") + " h"


def show_tokens(count: int) -> str:
    return f"{count:,}"
