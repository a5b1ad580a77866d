"""What the compiler warned of and no working kernel does: division by zero, a value that was never set."""

import re
from pathlib import PurePath

from weft.diagnose.records import Case, Signature

_MISTAKES = (
    r"division by zero",
    r'right operand of "%" is zero',
    r"shift count is .+",
    r"variable .+ is used before its value is set",
    r'use of "=" where "==" may have been intended',
)
"""Warnings about one statement that makes its result meaningless. Others (unused variables, pointless comparisons) are
evidence for the lines to inspect, as a kernel may be right in spite of them.
"""


def compiler_warning(case: Case) -> Signature | None:
    """The compiler warned of a statement that computes nothing useful."""
    for each in case.compiler_says if not case.verdict.passed else ():
        if each.place is not None and any(re.fullmatch(known, each.message) for known in _MISTAKES):
            message = f"the compiler warns at {PurePath(each.place.file).name}:{each.place.line}: {each.message}"
            return Signature(
                "compiler_warning", message, "correct the line that the compiler names", 0.91, place=each.place
            )
    return None
