"""Degenerate outputs: NaN and infinity, only zeros, or the mean of V for all Q and K."""

from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.start_lines import start_line

from .evidence import EXPLAINED, Bools, Output, has_splits, may_be, output_of, rank_of
from .lines import acts, line_of

LARGEST_EXPONENT = 88.7
"""exp of a larger number overflows float32."""


def nan_from_empty_tile(case: Case) -> Signature | None:
    """exp(-inf - -inf): NaN in rows that have no visible key yet when a tile (or the merge) is computed."""
    out = output_of(case)
    if out is None or not np.isnan(out.o).any():
        return None
    nan = np.isnan(out.o).all(axis=3)
    if (np.isnan(out.o).any(axis=3) != nan).any():
        return None
    rows = np.unique(np.nonzero(nan)[2])
    without, what = _empty(case, out, rows)
    if not rows.size or not without[rows].all() or _untouched(case):
        return None
    first = case.divergence
    if first is not None and first.tile is not None and first.stage in ("p", "l", "u"):
        what = f"KV tile {first.tile}"
    if (start := _start_of_maximum(case)) is not None:
        where = f"rows {ranges(map(int, rows))} of O are NaN, and no key is visible to them"
        return replace(start, message=f"{where}: {start.message}")
    message = (
        f"rows {ranges(map(int, rows))} of O are NaN, and no key of {what} is visible to them: m is -inf there, "
        "and exp(-inf - -inf), or 0 / 0, is NaN"
    )
    cure = "subtract 0 instead of m where m is -inf, and return O = 0, LSE = -inf where no key is visible"
    # Such rows have no expected P to compare with. The first NaN is an exponent: of a weight, on the line that computes
    # those of other rows, or, after the first launch, of the weight of a split.
    weights = {place.line for act in acts(case, "exponent") if (place := line_of(case, act)) is not None}
    nans = [(act, line_of(case, act)) for act in acts(case, "nan")]
    of_weight = [each for each in nans if each[1] is not None and each[1].line in weights]
    made, place = next(iter(of_weight or nans), (None, None))
    stage = "" if made is None else "p" if made.event.launch == 1 else "o"
    return Signature("nan_from_empty_tile", message, cure, 0.97, place=place, stage=stage)


def _start_of_maximum(case: Case) -> Signature | None:
    """A running maximum starts at 0: a row without a visible key is not recognised by it."""
    tile = case.divergence.tile if case.divergence is not None else None
    m = case.taps.at("m", tile) if case.taps is not None else None
    if m is not None and np.isneginf(m.values[m.observed]).any():
        return None
    for act in acts(case, "maximum"):
        place = start_line(line_of(case, act), lambda number: number == 0, steps=1)
        if place is not None:
            stage = "m" if act.event.launch == 1 else "o"  # of splits
            cure = "start m at -inf: it is also how a row without a visible key is recognised"
            return Signature("wrong_start", "m starts at 0, not at -inf", cure, 0.97, place=place, stage=stage)
    return None


def _empty(case: Case, out: Output, rows: Array) -> tuple[Bools, str]:
    """Return the rows without a visible key in the first tile, or in a split, and the name of that tile or split."""
    skv = out.mask.shape[1]
    block = min(case.algorithm.block_n if case.algorithm is not None else 32, skv)
    first = np.asarray(~out.mask[:, :block].any(axis=1))
    if first[rows].all() or not has_splits(case):
        return first, "KV tile 0"
    for share in sorted({*(-(-skv // count) for count in (2, 4, 8, 16)), block, 16, 32, 64, 128}):
        for start in range(0, skv, share):
            without = np.asarray(~out.mask[:, start : start + share].any(axis=1))
            if np.array_equal(np.flatnonzero(without), rows):
                return without, f"the split with keys {start} to {min(start + share, skv) - 1}"
    return first, "KV tile 0"


def _untouched(case: Case) -> bool:
    """Whether the NaN is that of an output that was never written."""
    o = case.o
    if o is None:
        return False
    raw = np.frombuffer(np.ascontiguousarray(o).tobytes(), np.uint8).reshape(-1, o.itemsize)
    return bool((raw == 0xFF).all(axis=1)[np.isnan(o.astype(np.float64)).ravel()].all())


def no_maximum(case: Case) -> Signature | None:
    """The maximum is not subtracted: exp overflows where scores are large, and only there."""
    out = output_of(case)
    if out is None or out.finite or _untouched(case):
        return None
    bad = ~np.isfinite(out.o).all(axis=3)
    peak = np.where(out.mask, out.scores(), -np.inf).max(axis=3)
    total = _log_sum(peak, out) + np.log(max(1.0, float(np.abs(out.v).max())))
    if not (total[bad] > LARGEST_EXPONENT - 0.1).all() or not (peak[~bad] < LARGEST_EXPONENT + 0.1).all():
        return None
    message = (
        f"O is not finite in the {int(bad.sum())} rows whose largest scores are {peak[bad].min():.4g} to "
        f"{peak[bad].max():.4g}: exp overflows above {LARGEST_EXPONENT}, so the maximum is not subtracted"
    )
    return Signature("no_maximum", message, "subtract the row's running maximum from every exponent", 0.95)


def _log_sum(peak: Array, out: Output) -> Array:
    lse = out.problem.gold.lse
    return np.maximum(np.where(np.isfinite(lse), lse, -np.inf), peak)


def all_zeros(case: Case) -> Signature | None:
    """O is 0 everywhere, though it should not be."""
    out = output_of(case)
    if out is None or out.o.any() or not out.right.any() or _was_accumulated(case):
        return None
    message = f"all {out.o.size} elements of O are 0: nothing was accumulated, or the wrong buffer was stored"
    cure = "check what the store of O reads: an accumulator that is never written, a loop without a tile, P = 0"
    return Signature("all_zeros", message, cure, 0.9)


def _was_accumulated(case: Case) -> bool:
    """Whether sums of P·V other than 0 were observed, and an earlier stage than O is the first wrong one."""
    first, taps = case.divergence, case.taps
    if first is None or taps is None or first.stage in ("o", "lse"):
        return False
    return any(tap.values[tap.observed].any() for (stage, _), tap in taps.taps.items() if stage == "u")


def uniform_weights(case: Case) -> Signature | None:
    """Every visible key has the same weight: O is the mean of V, and Q and K have no effect."""
    out = output_of(case)
    if out is None or not out.finite or not may_be(case, "q", "k", "products", "scores", "masked", "p"):
        return None
    left = out.left_over(out.attend(np.zeros((*out.o.shape[:3], out.mask.shape[1]))))
    if left > EXPLAINED / 4:
        return None
    message = "O is the mean of V over the visible keys: every weight is the same, and Q and K have no effect"
    cure = "check the scores: multiplied by 0, never stored, or read before they are stored"
    return Signature("uniform_weights", message, cure, rank_of(left) + 0.01, 1 - left)
