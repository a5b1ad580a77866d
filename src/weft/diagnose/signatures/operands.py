"""Wrong operands of the products Q·Kᵀ and P·V: another input, or elements that no product uses."""

import re

import numpy as np

from weft.core.records import Place
from weft.core.statements import statements_of
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Divergence, Signature
from weft.diagnose.tags import Kind
from weft.diagnose.taps import StageTap

from .evidence import RACES, Bools, errors, keys_in_sight
from .layout import SCORES
from .lines import acts, dropped_after, innermost_loop, line_of, load_of, outermost, used

NEVER_MULTIPLIED = {
    (Kind.K, Kind.P): ("the weights P are multiplied with K, not with V", "v", "multiply P with V"),
    (Kind.Q, Kind.P): ("the weights P are multiplied with Q, not with V", "v", "multiply P with V"),
    (Kind.Q, Kind.V): ("Q is multiplied with V, not with K", "k", "multiply Q with K"),
    (Kind.K, Kind.V): ("V is multiplied with K", "v", "multiply Q with K, and P with V"),
    (Kind.V, Kind.V): ("V is multiplied with V, not with the weights P", "p", "multiply P with V"),
    (Kind.K, Kind.K): ("K is multiplied with K, not with Q", "q", "multiply Q with K"),
    (Kind.Q, Kind.Q): ("Q is multiplied with Q, not with K", "k", "multiply Q with K"),
}
"""Pairs of values that no forward pass multiplies."""
_READ_OF_V = re.compile(r"(?<![\w.])v\s*\[|tl\.load\(\s*v\b")


def wrong_operand(case: Case) -> Signature | None:
    """Two kinds of values are multiplied that no forward pass multiplies: one is read from the wrong array.

    With a race, a tile of shared memory may hold K where V belongs, although every array is the right one.
    """
    if case.verdict.passed or errors(case, *RACES) or (case.staged is None and case.recipe is None):
        return None
    seen = case.taps.observed if case.taps is not None else ()
    for act in acts(case, "multiply"):
        words, stage, cure = NEVER_MULTIPLIED.get((act.kinds[0], act.kinds[-1]), ("", "", ""))
        # A kernel that computes the norm of a row multiplies it with itself, and then uses it as usual.
        if words and not (act.kinds[0] == act.kinds[-1] and ("p" if stage == "p" else "products") in seen):
            if _arrives(case, stage):
                cure = f"{cure}: check the offsets and strides with which shared memory is written and read"
                return Signature("wrong_operand", words, cure, 0.6, stage=stage)
            cure = f"{cure}: check the pointer of this load"
            return Signature("wrong_operand", words, cure, 0.96, place=line_of(case, act), stage=stage)
    return None


def _arrives(case: Case, stage: str) -> bool:
    """Whether every visible row of K or V is loaded from its array: then it is not the pointer that is wrong."""
    if case.taps is None or case.staged is None or stage not in ("k", "v"):
        return False
    loaded = np.asarray(case.taps.fetches[stage].any(axis=(0, 1, 3)))
    return bool(loaded[keys_in_sight(case.staged)].all())


def left_out(case: Case) -> Signature | None:
    """Exactly those results are wrong that lack elements of Q, K or V: no product uses these elements."""
    first, taps = case.divergence, case.taps
    if first is None or taps is None or case.staged is None or first.stage in "qkv":
        return None
    wrong = np.asarray(first.wrong & first.observed)
    for stage in "qkv":
        in_use = used(taps, stage)
        gaps = np.asarray(in_use.any(axis=3, keepdims=True) & ~in_use)
        if gaps.any() and _explains(stage, gaps, wrong, first, taps.at("o")):
            return _left_out(case, stage, gaps)
    return None


def _explains(stage: str, gaps: Bools, wrong: Bools, first: Divergence, o: StageTap | None) -> bool:
    """Whether the wrong results are those of the rows of Q, the keys of K or the columns of V that have gaps."""
    if stage == "q" and first.stage in SCORES:
        return np.array_equal(wrong.any(axis=3), gaps.any(axis=3))
    if stage == "k" and first.stage in SCORES:
        keys = np.asarray(gaps.any(axis=(0, 1, 3)))
        return not keys.all() and np.array_equal(wrong.any(axis=(0, 1, 2)), keys[first.keys.start : first.keys.stop])
    columns = gaps.any(axis=(0, 1, 2))
    if o is None or not np.asarray(o.observed.any(axis=(0, 1, 2)))[columns].all():  # what is not stored is not computed
        return False
    return stage == "v" and first.stage in ("u", "o") and np.array_equal(wrong.any(axis=(0, 1, 2)), columns)


def _left_out(case: Case, stage: str, gaps: Bools) -> Signature | None:
    place, name = dropped_after(case, stage, gaps), stage.upper()
    columns, rows = (np.flatnonzero(gaps.any(axis=axes)) for axes in ((0, 1, 2), (0, 1, 3)))
    everywhere = bool((gaps.any(axis=(0, 1)).sum(axis=0)[columns] == rows.size).all())
    part = "" if everywhere and rows.size > 1 else f" in {'row' if stage == 'q' else 'key'} {ranges(map(int, rows))}"
    message = f"columns {ranges(map(int, columns))} of {name}{part} are never multiplied: no product uses them"
    if place is not None:
        cure = f"check where this load puts {name}: the products read these elements elsewhere"
        return Signature("left_out", message, cure, 0.95, place=place, stage=stage)
    if stage != "v":  # lost in memory, or overwritten there
        return None
    cure = "let the loop over the columns begin at 0 and end at D"
    load = outermost(load_of(case, "V"))
    return Signature("left_out", message, cure, 0.95, place=innermost_loop(load) if load else None, stage="u")


def never_read(case: Case) -> Signature | None:
    """All before P·V is right, and V is not read at all: the compiler has removed a loop without iterations."""
    first, taps, kernel = case.divergence, case.taps, case.kernel
    if first is None or taps is None or kernel is None or case.staged is None or first.stage not in ("u", "o"):
        return None
    if taps.fetches["v"].any() or taps.reads["v"].any() or not taps.fetches["k"].any():
        return None
    lines = _reads_of_v(kernel.path)
    if not lines or not any(stage == "l" for stage, _ in taps.taps):
        return None
    message = "V is never read, and what was observed before P·V is right: the loop over its columns has no iteration"
    cure = "check the bounds of the loop that reads V"
    return Signature("never_read", message, cure, 0.95, place=Place(kernel.path, lines[0]), stage="u")


def _reads_of_v(file: str) -> list[int]:
    """Return the lines of the text that read the array `v`, by its name."""
    text = statements_of(file)
    return [at for at in range(1, len(text.lines) + 1) if _READ_OF_V.search(text.code(at))]
