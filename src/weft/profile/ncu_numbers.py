"""Numbers and units as ncu prints them: thousands separators of the user's locale, scaled units, `n/a`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from weft.core.errors import UsageError

from .ncu_records import Measured

_SCALE = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES = {
    "nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9,
}  # fmt: skip
_SCALED = re.compile(r"([KMGT])([a-z].*)")
_EXPONENT = re.compile(r"-?\d+(?:\.(\d+))?[eE]([-+]?\d+)")


@dataclass(frozen=True)
class Style:
    """The number format of a locale."""

    group: str
    point: str

    @property
    def sure(self) -> re.Pattern[str]:
        """Numbers that only this style writes: two groups, a group and a fraction, or a fraction unlike a group."""
        group, point = re.escape(self.group), re.escape(self.point)
        return re.compile(
            rf"-?\d{{1,3}}({group}\d{{3}}){{2,}}({point}\d+)?|-?\d{{1,3}}({group}\d{{3}})+{point}\d+"
            rf"|-?0{point}\d+|-?\d{{4,}}{point}\d+|-?\d+{point}(\d{{1,2}}|\d{{4,}})"
        )

    @property
    def any(self) -> re.Pattern[str]:
        """Every number of this style."""
        group, point = re.escape(self.group), re.escape(self.point)
        return re.compile(rf"-?(\d{{1,3}}({group}\d{{3}})+|\d+)({point}\d+)?")


ENGLISH = Style(group=",", point=".")
EUROPEAN = Style(group=".", point=",")


def style_of(texts: Iterable[str]) -> Style:
    """Return the style of a report, decided by numbers that only one style can write; English if there are none."""
    found: dict[str, str] = {}
    for text in texts:
        english, european = ENGLISH.sure.fullmatch(text), EUROPEAN.sure.fullmatch(text)
        if english and not european:
            found.setdefault("English", text)
        elif european and not english:
            found.setdefault("European", text)
    if len(found) == 2:
        raise UsageError(
            f"the report has numbers of two locales, {found['English']!r} and {found['European']!r}: "
            "write it with LC_ALL=C"
        )
    return EUROPEAN if "European" in found else ENGLISH


def measured(text: str, unit: str, style: Style) -> Measured | None:
    """Return the number in base units; None for `n/a`, a name or several values."""
    text = text.strip()
    factor, base = base_unit(unit)
    power = _EXPONENT.fullmatch(text)
    if power:
        within = 0.5 * 10.0 ** (int(power[2]) - len(power[1] or "")) * factor
        return Measured(float(text) * factor, within, base)
    if not style.any.fullmatch(text):
        return None
    plain = text.replace(style.group, "").replace(style.point, ".")
    fraction = plain.partition(".")[2]
    rounded = bool(fraction) or factor != 1
    within = 0.5 * 10.0 ** -len(fraction) * factor if rounded else 0.0
    return Measured(float(plain) * factor, within, base)


def base_unit(unit: str) -> tuple[float, str]:
    """Return the unit's factor to its base unit, and the base unit."""
    unit = unit.strip()
    if unit in _TIMES:
        return _TIMES[unit], "ns"
    scaled = _SCALED.fullmatch(unit)
    return (_SCALE[scaled[1]], scaled[2]) if scaled else (1.0, unit)
