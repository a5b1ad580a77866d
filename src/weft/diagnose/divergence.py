"""The first wrong stage as a record: its place, thread, extent, and one element's arithmetic."""

from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.engines.kernel_file import KernelFile

from .compare import BY_KEY, Compared, Mask
from .ranges import ranges
from .records import Divergence
from .spelling import own_site
from .tags import Kind
from .taps import Key, Operand, Site, Taps
from .worked import Worked

CLOSE = 0.01
"""Approximate exponentials and divisions, and 16-bit results, are nearer to each other than this."""


def divergence_of(
    found: Compared, taps: Taps, kernel: KernelFile, worked: Worked, operand: Operand | None = None
) -> Divergence:
    """Return the divergence of an observed stage. `operand` is a wrong operand of it, where one is known."""
    index = first_index(found.wrong)
    used = own_site(taps.site(found.tap, index), kernel)
    operand = operand or _wrong_factor(found, index, taps, worked) or _not_a_score(found, taps, worked)
    factor = own_site(operand.site, kernel) if operand is not None else None
    site = factor or own_site(taps.maker(found.tap, index), kernel) or used
    seen = found.tap.observed, found.tap.values
    whole = _divergence(worked, found.key, found.wrong, seen, (found.expected, found.tolerance), site)
    return replace(whole, used=used, operand=operand.words if operand is not None and factor is not None else "")


def _wrong_factor(found: Compared, index: tuple[int, ...], taps: Taps, worked: Worked) -> Operand | None:
    """Return the factor of a sum, if it is the wrong operand: the rescale of l and U, 1 / l of O.

    What was right before and is multiplied with a wrong factor is wrong where the factor is computed.
    """
    row, tap = index[:3], taps.factors.get(found.key)
    if tap is None or not tap.observed[row]:
        return None
    factor, right = float(tap.values[row]), worked.rescale(found.key, row)
    if found.key[0] == "o":
        u = worked.expected.get(("u", worked.last_tile())) if worked.algorithm.splits == 1 else None
        o = float(found.tap.values[index])
        if u is None or not u[index] or not abs(float(u[index]) * factor - o) <= CLOSE * abs(o):  # also if NaN
            return None
        right = float(found.expected[index]) / float(u[index])
    if right is None or abs(factor - right) <= CLOSE * abs(right):
        return None
    made = taps.maker(tap, row)
    multiplied = "U" if found.key[0] in ("u", "o") else found.key[0]
    return Operand(made, f"{multiplied} is multiplied with {factor:.4g}, not {right:.4g}") if made is not None else None


def _not_a_score(found: Compared, taps: Taps, worked: Worked) -> Operand | None:
    """Return where scores are compared, if no wrong m is one of the scores of its row: something else was compared. One
    number for all rows is a start.
    """
    stage, tile = found.key
    scores = [worked.expected.get(("masked", at)) for at in range((tile or 0) + 1)]
    first = next((act for act in taps.acts if act.what == "maximum" and act.kinds == (Kind.S,)), None)
    if stage != "m" or first is None or any(each is None for each in scores):
        return None
    wrong = found.wrong & found.tap.observed & np.isfinite(found.tap.values)
    row_scores = np.concatenate([each for each in scores if each is not None], axis=-1)[wrong]
    near = np.abs(row_scores - found.tap.values[wrong][:, None]) <= found.tolerance[wrong][:, None]
    if np.unique(found.tap.values[wrong]).size < 2 or near.any():
        return None
    return Operand(Site.of(first.event, 0), "it is none of the scores of its row")


def output_divergence(worked: Worked, wrong: Mask, o: Array, expected: Array, tolerance: Array) -> Divergence:
    """Return the divergence of an output that is wrong while no stage before it was observed to be wrong."""
    seen = np.ones(o.shape, bool), o.astype(np.float64)
    return _divergence(worked, ("o", None), wrong, seen, (expected, tolerance), None)


def _divergence(
    worked: Worked, key: Key, wrong: Mask, seen: tuple[Mask, Array], should: tuple[Array, Array], site: Site | None
) -> Divergence:
    stage, tile = key
    (observed, actual), (expected, tolerance) = seen, should
    index = first_index(wrong)
    keys = worked.keys(tile)
    where = np.nonzero(wrong)
    rows, columns = where[2], where[3] if wrong.ndim == 4 else None
    return Divergence(
        stage=stage,
        tile=tile,
        keys=keys,
        index=index,
        site=site,
        heads=heads_of(where[0], where[1]),
        rows=ranges(rows + keys.start if stage in ("k", "v") else rows),
        columns="" if columns is None else ranges(columns + keys.start if stage in BY_KEY else columns),
        share=float(wrong.sum() / observed.sum()),
        wrong=wrong,
        observed=observed,
        actual=actual,
        expected=expected,
        tolerance=tolerance,
        arithmetic=worked.element(key, index, float(actual[index])),
    )


def first_index(wrong: Mask) -> tuple[int, ...]:
    """Return the index of the first wrong element."""
    return tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))


def heads_of(batches: Array, heads: Array) -> str:
    """Return (batch, head) pairs as readable ranges."""
    pairs: dict[int, set[int]] = {}
    for batch, head in zip(batches.tolist(), heads.tolist(), strict=True):
        pairs.setdefault(batch, set()).add(head)
    return "; ".join(f"batch {batch} head {ranges(found)}" for batch, found in pairs.items())
