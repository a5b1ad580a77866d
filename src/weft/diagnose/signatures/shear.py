"""Tiles that are read with another row stride than they were written with."""

import re
from collections.abc import Iterator
from math import gcd

import numpy as np

from weft.attention.dtypes import Array, numpy_dtype
from weft.diagnose.records import Case, Divergence, Signature

from .evidence import Bools, best, output_of, rank_of, remaining, score_unit
from .lines import load_of

SCORES = ("products", "scores", "masked")
BLOCKS = (8, 16, 32, 64, 128)
PADDING = (0, 1, 2, 4, 8, 16, 32)
"""Padding elements that a row of a tile may have after its D elements."""
FRAGMENT = 16


_CURE = "load the tile with the row stride it was stored with, padding included"


def leading_dimension(case: Case) -> Signature | None:
    """A tile is read with another row stride than it was written with."""
    return _by_dataflow(case) or _by_rows(case) or _sheared_scores(case) or _sheared_u(case) or _reads_padding(case)


def _by_dataflow(case: Case) -> Signature | None:
    """By the pairs that are multiplied: column c of one tensor with row r, column e of the other, if r · stored + e - c
    is a multiple of the stride it is read with. Transposed tiles, where e goes up by one, are `k_not_transposed`.
    """
    if case.taps is None or case.attention is None:
        return None
    d = case.attention.q.shape[3]
    for fact in case.taps.facts:
        for moved, pairs in _met(fact.code, fact.message):
            strides = [(gcd(*(row * (d + more) + e - c for c, row, e in pairs)), d + more) for more in PADDING]
            read, stored = max(strides, key=lambda each: each[0])
            if len(pairs) >= 3 and read >= 8 and read != stored and any(row for _, row, _ in pairs):
                words = f"{moved}, written with {stored} elements per row, is read with {read}"
                c, row, e = pairs[-1]
                message = f"the tile is sheared: {words} (column {c} is multiplied with row {row}, column {e})"
                return _sheared(case, words, message)
    return None


def _met(code: str, message: str) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    """Yield (sheared tensor, [(column of the other, its row, its column)]) of the examples in a fact's message."""
    if code == "inner_mismatch":
        found = [tuple(map(int, pair)) for pair in _Q_WITH_K.findall(message)]
        yield "K", [(c, row, e) for _, c, row, e in found if c == found[0][1]]
        yield "Q", [(c, row, e) for row, e, _, c in found if c == found[0][3]]


_Q_WITH_K = re.compile(r"q\[\d+, \d+, (\d+), (\d+)\] with k\[\d+, \d+, (\d+), (\d+)\]")


def _sheared_scores(case: Case) -> Signature | None:
    """By the scores, where they are observed: each is the product of Q with a sheared row of K, or the reverse."""
    first, problem = case.divergence, case.attention
    if first is None or problem is None or first.stage not in SCORES or first.tile is None:
        return None
    factor = 1.0 if first.stage == "products" else score_unit(case)
    q, k = problem.q.astype(np.float64), _tile(case, problem.k)
    candidates = []
    for stride, read in _strides(case, q.shape[3]):
        for tensor, x, y in (("K", k, q), ("Q", q, k)):
            sheared = _shear(x, stride, read)
            a, b = (y, sheared) if tensor == "K" else (sheared, y)
            rows, columns = (np.asarray(np.isfinite(side).all(axis=3)) for side in (a, b))
            known = rows[..., None] & columns[:, :, None]
            s = np.nan_to_num(a) @ np.nan_to_num(b).swapaxes(2, 3) * factor
            left = _left(first, s, known)
            candidates.append((left, f"{tensor}, written with {stride} elements per row, is read with {read}"))
    found = best(candidates)
    return (
        None
        if found is None
        else _sheared(case, found[1], f"{first.name} match a sheared tile: {found[1]}", left=found[0])
    )


def _sheared_u(case: Case) -> Signature | None:
    """The same for V, by U of the first tile."""
    first, problem = case.divergence, case.attention
    if first is None or problem is None or first.stage != "u" or first.tile != 0 or ("p", 0) not in case.expected:
        return None
    p, v = case.expected["p", 0].astype(np.float64), _tile(case, problem.v)
    candidates = []
    for stride, read in _strides(case, v.shape[3]):
        sheared = _shear(v, stride, read)
        known = np.broadcast_to(np.isfinite(sheared).all(axis=2, keepdims=True), first.actual.shape)
        left = _left(first, p @ np.nan_to_num(sheared), known)
        candidates.append((left, f"V, written with {stride} elements per row, is read with {read}"))
    found = best(candidates)
    return (
        None
        if found is None
        else _sheared(case, found[1], f"{first.name} matches a sheared tile: {found[1]}", left=found[0])
    )


def _tile(case: Case, x: Array) -> Array:
    """Return the keys of the divergence's tile, one head per query head."""
    assert case.divergence is not None and case.attention is not None
    keys = slice(case.divergence.keys.start, case.divergence.keys.stop)
    return np.repeat(x[:, :, keys].astype(np.float64), case.attention.workload.shape.group, axis=1)


def _left(first: Divergence, explained: Array, known: Bools) -> float:
    """Return the share of the error left. Padding is 0, or undefined: then exactly the reads of it are not finite."""
    finite = np.isfinite(first.actual)
    use = first.observed & np.isfinite(first.expected)
    if not finite[use].all():
        if (finite[use] == known[use]).mean() < 0.95:
            return float("inf")
        use = use & finite & known
    if use.sum() < 8:
        return float("inf")
    return remaining(first.actual[use], explained[use], first.expected[use])


def _by_rows(case: Case) -> Signature | None:
    """By O: a row with another row's result shows the row stride with which Q was read."""
    out = output_of(case)
    if out is None:
        return None
    d, pairs = out.o.shape[3], set()
    spread = np.linalg.norm(out.right, axis=3).max()
    for b, h, row in np.argwhere(out.wrong.any(axis=3) & np.isfinite(out.o).all(axis=3)):
        apart = np.linalg.norm(out.right[b, h] - out.o[b, h, row], axis=1)
        base = row // FRAGMENT * FRAGMENT
        if apart.min() > 0.01 * spread or not 0 < apart.argmin() - base < row - base:
            return None
        pairs.add((int(row - base), int(apart.argmin() - base)))
    if not pairs or np.isfinite(out.o).all():
        return None
    for stored in (d + more for more in PADDING):
        reads = {stored * held / row for row, held in pairs}
        if len(reads) == 1 and (read := reads.pop()).is_integer() and read % 8 == 0:
            row, held = min(pairs)
            words = f"Q, written with {stored} elements per row, is read with {int(read)}"
            message = f"the tile is sheared: {words} (row {row} of a fragment gives the result of row {held})"
            return _sheared(case, words, message)
    return None


def _reads_padding(case: Case) -> Signature | None:
    """A product is NaN or lost, and an undefined element that was read is directly after the D elements of a row."""
    first, problem = case.divergence, case.attention
    if first is None or problem is None or case.algorithm is None:
        return None
    stage = case.lost[0] if case.lost is not None else first.stage
    if stage not in (*SCORES, "u") or not np.isnan(first.actual[first.observed & first.wrong]).any():
        return None
    d, size = problem.q.shape[3], numpy_dtype(case.algorithm.operand_dtype).itemsize
    for finding in case.findings:
        offset = re.search(r"(\w+)\+0x([0-9a-f]+)", finding.message) if finding.code == "I201" else None
        if offset is not None and int(offset[2], 16) == d * size:
            message = (
                f"{stage} is NaN though its factors are right: element {d} of {offset[1]} is read, which is "
                f"padding after the D = {d} elements of its first row, so rows are read with another stride"
            )
            return Signature("leading_dimension", message, _CURE, 0.91, place=finding.place)
    return None


def _sheared(case: Case, words: str, message: str, left: float | None = None) -> Signature:
    """Return the signature; `words` begin with the tensor, `left` is the share of the error left, where measured."""
    rank, explained = rank_of(left or 0.0, seen=True), None if left is None else 1 - left
    return Signature("leading_dimension", message, _CURE, rank, explained, place=load_of(case, words[0]))


def _strides(case: Case, d: int) -> Iterator[tuple[int, int]]:
    """Yield row strides as stored, and as read."""
    block = case.algorithm.block_n if case.algorithm is not None else 32
    reads = dict.fromkeys([block, d, *BLOCKS, *(d + more for more in PADDING), *(block + more for more in PADDING)])
    for more in PADDING:
        for read in reads:
            if read != d + more:
                yield d + more, read


def _shear(x: Array, stride: int, read: int) -> Array:
    """Return rows (…, n, d) stored with one stride as 16 × 16 fragments read with another; NaN for padding."""
    n, d = x.shape[2:]
    rows, columns = np.arange(n)[:, None], np.arange(d)[None]
    first_row, first_column = rows // FRAGMENT * FRAGMENT, columns // FRAGMENT * FRAGMENT
    flat = first_row * stride + first_column + (rows - first_row) * read + (columns - first_column)
    row, column = np.divmod(flat, stride)
    known = (row < n) & (column < d)
    values = x[:, :, np.minimum(row, n - 1), np.minimum(column, d - 1)]
    return np.where(known, values, np.nan)
