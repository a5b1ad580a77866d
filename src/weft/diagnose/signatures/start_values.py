"""A running maximum or sum that starts at a wrong number: the numbers show the start, the text its line."""

import re
from collections.abc import Callable

import numpy as np

from weft.core.records import Place, inlining_chain
from weft.core.statements import statements_of
from weft.diagnose.records import Case, Divergence, Signature

SAME = 1e-3
"""Differences between rows that roundings explain, relative to the start."""
MOST_PARTS = 1024
"""A sum over threads is off by as many starts as it has parts."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_STEPS = 3
_GIVEN = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?:\s*\[[^\]]*\])*\s*=(?!=)\s*((?:[^;,(]|\([^;]*)*)")
"""A name, and what it is given: up to the next name of a declaration, or the end."""
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?")
"""Of floating point: an integer is a bound or a step."""


def wrong_start(case: Case) -> Signature | None:
    """m is nowhere below a number; or l or U of the first tile is too large by the same number everywhere."""
    first = case.divergence
    if first is None or first.tile is None or not (first.wrong & first.observed).any():
        return None
    if first.stage == "m":
        # Masked scores that are 0 have the same effect on m: they must have been seen to be right.
        seen = case.taps is not None and case.taps.at("masked", first.tile) is not None
        return _of_maximum(first) if seen else None
    return _of_sum(first) if first.stage in ("l", "u") and first.tile == 0 else None


def _of_maximum(first: Divergence) -> Signature | None:
    wrong = first.wrong & first.observed
    found, expected = first.actual[wrong].astype(np.float64), first.expected[wrong]
    start = float(found[0])
    if (found.size < 2 and start != 0) or not np.isfinite(start) or np.ptp(found) or not (expected < start).all():
        return None
    where = f"in all {found.size} rows" if found.size > 1 else "in the only row"
    words = f"{first.name} is {start:.4g} {where} that should have less: it starts at {start:.4g}"
    return _signature(first, words, "start m at -inf", lambda number: number == start)


def _of_sum(first: Divergence) -> Signature | None:
    seen = first.observed & np.isfinite(first.actual)
    excess = (first.actual.astype(np.float64) - first.expected)[seen]
    start = float(np.median(excess))
    if excess.size < 2 or start == 0 or np.ptp(excess) > SAME * abs(start) or not first.wrong[seen].all():
        return None
    words = f"{first.name} is {start:.4g} too large everywhere: it, or what is added up to it, does not start at 0"

    def is_start(number: float) -> bool:
        parts = start / number if number else 0.0
        return 1 - SAME <= parts <= MOST_PARTS and abs(parts - round(parts)) <= SAME * parts

    return _signature(first, words, f"start {first.stage} at 0", is_start)


def _signature(first: Divergence, words: str, cure: str, is_start: Callable[[float], bool]) -> Signature:
    place = _assignment(first.site.place if first.site is not None else None, is_start)
    return Signature("wrong_start", words, cure, 0.97 if place is not None else 0.91, place=place, stage=first.stage)


def _assignment(site: Place | None, is_start: Callable[[float], bool]) -> Place | None:
    """Return the nearest line above that gives such a number to a name of the line that computes the value; else to a
    name that one of these is computed from, and so on.
    """
    for at in inlining_chain(site):
        text = statements_of(at.file)
        names = set(_WORD.findall(text.code(at.line)))
        for _ in range(_STEPS):
            fresh: set[str] = set()
            for number in range(at.line - 1, 0, -1):
                for given in _GIVEN.finditer(text.code(number)):
                    if given[1] in names and any(map(is_start, _constants(given[2]))):
                        return Place(at.file, number)
                    fresh |= set(_WORD.findall(given[2])) if given[1] in names else set()
            names |= fresh
    return None


def _constants(text: str) -> list[float]:
    """Return the numbers of an expression that is a constant."""
    if "tl." in text:
        return [*map(float, _NUMBER.findall(text)), *([0.0] if "tl.zeros(" in text else [])]
    found = _NUMBER.match(text)
    return [float(found[0])] if found is not None and text[found.end() :].strip() in ("", "f") else []
