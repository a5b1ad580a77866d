"""A running maximum or sum that starts at a wrong number: the numbers show the start, the text its line."""

from collections.abc import Callable

import numpy as np

from weft.diagnose.records import Case, Divergence, Signature
from weft.diagnose.start_lines import start_line

SAME = 1e-3
"""Differences between rows that roundings explain, relative to the start."""
MOST_PARTS = 1024
"""A sum over threads is off by as many starts as it has parts."""


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
    if excess.size < 2:
        return None
    start = float(np.median(excess))
    if start == 0 or np.ptp(excess) > SAME * abs(start) or not first.wrong[seen].all():
        return None
    words = f"{first.name} is {start:.4g} too large everywhere: it, or what is added up to it, does not start at 0"

    def is_start(number: float) -> bool:
        parts = start / number if number else 0.0
        return 1 - SAME <= parts <= MOST_PARTS and abs(parts - round(parts)) <= SAME * parts

    return _signature(first, words, f"start {first.stage} at 0", is_start)


def _signature(first: Divergence, words: str, cure: str, is_start: Callable[[float], bool]) -> Signature:
    place = start_line(first.site.place if first.site is not None else None, is_start)
    return Signature("wrong_start", words, cure, 0.97 if place is not None else 0.91, place=place, stage=first.stage)
