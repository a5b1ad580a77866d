"""A constant of the text whose name says a number of mathematics, and whose value is another one."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from weft.core.errors import UsageError
from weft.core.records import Place
from weft.core.statements import statements_of
from weft.diagnose.records import Case, Signature
from weft.engines.expressions import Expression

WITHIN = 1e-4
"""Constants are often written with five digits."""
NUMBERS = {
    "log2(e)": (math.log2(math.e), ("LOG2E", "MLOG2E", "LOG2OFE", "INVLN2", "RCPLN2")),
    "ln 2": (math.log(2), ("LN2", "MLN2", "LOGE2", "INVLOG2E", "RCPLOG2E")),
}
"""The names are those of constants without `_`."""
_GIVEN = re.compile(r"#\s*define\s+(\w+)[ \t]+(.+)|\b([A-Z]\w*)\s*(?::[^=;]*)?=(?!=)\s*([^=;,]+)")
_CONSTEXPR = re.compile(r"(?:tl\.)?constexpr\((.*)\)\s*$|float\((.*)\)\s*$")
_SUFFIX = re.compile(r"(?<=[\d.])f\b")


@dataclass(frozen=True)
class Constant:
    """A constant whose name says `meaning`."""

    name: str
    value: float
    meaning: str
    right: float
    place: Place


def wrong_constant(case: Case) -> Signature | None:
    """LOG2_E, LN_2 or a similar constant has another value than its name says."""
    found = None if case.verdict.passed else next(wrong_constants(str(case.candidate.path)), None)
    if found is None:
        return None
    message = f"`{found.name}` is {found.value:.7g}; {found.meaning} is {found.right:.7g}"
    return Signature("wrong_constant", message, f"write {found.right!r}", 0.98, place=found.place)


def wrong_constants(path: str) -> Iterator[Constant]:
    """Yield the constants of a file whose value is not what their name says."""
    text = statements_of(path)
    for line in range(1, len(text.lines) + 1):
        for name, value in _constants(text.code(line)):
            for meaning, (right, names) in NUMBERS.items():
                if name.upper().replace("_", "") in names and abs(value / right - 1) > WITHIN:
                    yield Constant(name, value, meaning, right, Place(path, line))


def _constants(code: str) -> Iterator[tuple[str, float]]:
    """Yield the names of a line that are given a number, with it: `LN_2 = 0.6931f`, `#define LN2 0.6931`."""
    for given in _GIVEN.finditer(code):
        name, text = (given[1], given[2]) if given[1] else (given[3], given[4])
        wrapped = _CONSTEXPR.match(text.strip())
        number = _SUFFIX.sub("", (wrapped[1] or wrapped[2]) if wrapped else text)
        try:
            value = float(Expression.parse(number).value({}))
        except (UsageError, ArithmeticError, TypeError):
            continue
        yield name, value
