"""Warp reductions that are wrong or missing."""

from collections.abc import Iterator

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.reference import softmax
from weft.diagnose.ranges import ranges
from weft.diagnose.records import Case, Signature
from weft.diagnose.tags import Kind

from .evidence import EXPLAINED, Output, best, has_fact, may_be, output_of, rank_of, remaining
from .lines import acts, line_of, outermost

SCORES = ("products", "scores", "masked")
WARP = 32
APART = 0.01
"""Relative: lanes that add in another order are nearer to each other."""


def lane_owns_row(case: Case) -> Signature | None:
    """Each lane holds the complete score of another row (or key), and the warp or quad adds them up."""
    if not may_be(case, *SCORES):
        return None
    found, seen = _by_scores(case), True
    if found is None:
        out = output_of(case)
        if out is None or not out.finite:
            return None
        found, seen = _by_output(case, out)
    if found is None:
        return None
    message = f"each score is the sum over {found[1]}: each lane has a complete dot product, and the warp adds them up"
    cure = "remove the warp reduction where a lane has a complete dot product; reduce only over lanes that share one"
    mixed, first = next(acts(case, "mix"), None), case.divergence
    made = first.site if first is not None and first.stage in SCORES else None
    place = outermost(line_of(case, mixed) if mixed is not None or made is None else made.place)
    return Signature("lane_owns_row", message, cure, rank_of(found[0], seen=seen), 1 - found[0], place=place)


def _by_output(case: Case, out: Output) -> tuple[tuple[float, str] | None, bool]:
    """By O, and whether LSE confirms it: equal scores give uniform weights, however large they are."""
    lse, found = case.arrays.get("lse"), []
    for s, words in _summed(out.scores()):
        weights, meant = softmax(np.where(out.mask, s, -np.inf))
        left = out.left_over(weights @ out.v)
        if left <= EXPLAINED:
            agrees = lse is not None and lse.shape == meant.shape and np.allclose(lse, meant, rtol=1e-3, atol=1e-3)
            found.append((not agrees, left, words))
    if not found:
        return None, False
    differs, left, words = min(found)
    return (left, words), not differs


def _by_scores(case: Case) -> tuple[float, str] | None:
    """The same by the scores, where they are observed. Lanes of one warp hold adjacent rows or keys."""
    first, problem = case.divergence, case.attention
    if first is None or problem is None or first.stage not in SCORES or first.tile is None:
        return None
    whole = np.concatenate([case.expected[key] for key in _tiles(case, first.stage)], axis=-1).astype(np.float64)
    if not np.isfinite(whole).all():
        return None
    keys = slice(first.keys.start, first.keys.stop)
    use = first.observed & np.isfinite(first.actual)
    return best(
        (remaining(first.actual[use], s[..., keys][use], first.expected[use]), words) for s, words in _summed(whole)
    )


def _tiles(case: Case, stage: str) -> list[tuple[str, int | None]]:
    return sorted((key for key in case.expected if key[0] == stage), key=lambda key: key[1] or 0)


def _summed(s: Array) -> Iterator[tuple[Array, str]]:
    """Yield scores (…, rows, keys), each the sum over its warp; lanes beyond the end repeat the last or add 0."""
    if s.shape[3] > 1:
        yield _over_quads(s), "the 4 lanes of an accumulator's row"
    for axis, what in ((2, "rows"), (3, "keys")):
        count = s.shape[axis]
        if count == 1:
            # The lanes beyond the end repeat it: only the factor 32 is conclusive.
            yield s * WARP, f"the {WARP} lanes of a warp"
            continue
        for lanes in (WARP, *(part for part in (16, 8, 4) if part < count)):
            groups = -(-count // lanes)
            at = np.minimum(np.arange(groups * lanes), count - 1)
            repeated = np.take(s, at, axis=axis)
            yield _over_groups(repeated, axis, lanes, count), f"the {lanes} {what} of a warp"
            inside = np.arange(groups * lanes) < count
            shape = [1] * 4
            shape[axis] = -1
            yield _over_groups(repeated * inside.reshape(shape), axis, lanes, count), f"up to {lanes} {what} of a warp"


def _over_quads(s: Array) -> Array:
    """Return the sums over the four lanes of an accumulator's row: lane t has keys 8j + 2t and 8j + 2t + 1."""
    count = s.shape[-1]
    padded = np.concatenate([s, np.zeros((*s.shape[:-1], -count % 8))], axis=-1)
    blocks = padded.reshape(*s.shape[:-1], -1, 4, 2)
    return np.repeat(blocks.sum(axis=-2, keepdims=True), 4, axis=-2).reshape(padded.shape)[..., :count]


def _over_groups(s: Array, axis: int, lanes: int, count: int) -> Array:
    sums = np.add.reduceat(s, np.arange(0, s.shape[axis], lanes), axis=axis)
    return np.take(np.repeat(sums, lanes, axis=axis), np.arange(count), axis=axis)


def lanes_differ(case: Case) -> Signature | None:
    """Lanes of a warp use different values of one score, after they exchanged their parts of it."""
    taps, first = case.taps, case.divergence
    exchange = next(acts(case, "exchange", Kind.S), None)
    if taps is None or first is None or exchange is None or case.verdict.passed or case.attention is None:
        return None
    if first.stage in "qk" or has_fact(case, "inner_mismatch", "mixed_keys", "mixed_rows", "head_mismatch"):
        return None
    for other in taps.disagreements:
        seen = taps.at("scores", other.col // taps.algorithm.block_n)
        value = float("nan") if seen is None else _at_row(seen.values, other.row)[other.col % taps.algorithm.block_n]
        if other.stage == "scores" and abs(other.value * (seen.factor if seen else 1) - value) > APART * abs(value):
            row = other.row % case.attention.workload.shape.sq
            message = (
                f"lanes of a warp have different values of the score of row {row} and key {other.col}, e.g. "
                f"{value:.4g} and {other.value:.4g}: their parts are not added up in all lanes"
            )
            cure = "add the parts of all lanes in every lane: __shfl_xor_sync by 16, 8, 4, 2 and 1"
            return Signature("lanes_differ", message, cure, 0.94, place=line_of(case, exchange), stage="scores")
    return None


def lanes_lack_keys(case: Case) -> Signature | None:
    """m has only the keys of some lanes, though lanes exchange what they have: the exchange does not reach all."""
    taps, first = case.taps, case.divergence
    exchange = next((act for kind in (Kind.M, Kind.S) for act in acts(case, "exchange", kind)), None)
    tap = taps.at("m", first.tile) if taps is not None and first is not None else None
    if tap is None or tap.keys is None or first is None or exchange is None or case.attention is None:
        return None
    if first.stage != "m" or case.verdict.passed:
        return None
    rows = np.asarray(first.wrong & first.observed)
    wanted = np.broadcast_to(case.attention.mask, tap.keys.shape)[rows][:, first.keys.start : first.keys.stop]
    held = tap.keys[rows][:, first.keys.start : first.keys.stop]
    if not rows.any() or not (wanted & ~held).any(axis=1).all():
        return None
    lacking = np.flatnonzero((wanted & ~held)[0]) + first.keys.start
    some = ranges(map(int, lacking))
    message = f"{first.name} of a row lacks keys, e.g. {some}: lanes do not get the maxima of all others"
    cure = "take the maximum over all lanes in every lane: __shfl_xor_sync by 16, 8, 4, 2 and 1"
    return Signature("lanes_differ", message, cure, 0.94, place=line_of(case, exchange), stage="m")


def _at_row(values: Array, row: int) -> Array:
    """Return a row, counted over all heads."""
    return np.asarray(values.reshape(-1, values.shape[-1])[row])


def inner_columns(case: Case) -> Signature | None:
    """Q·Kᵀ is summed over some columns only, or over some twice: one lane's partial sum, a loop that ends early."""
    if not may_be(case, "q", "k", *SCORES):
        return None
    weights = _weights(case)
    if weights is not None:
        dropped, twice = np.flatnonzero(np.abs(weights) < 0.02), np.flatnonzero(np.abs(weights - 2) < 0.02)
        kept = np.flatnonzero(np.abs(weights - 1) < 0.02)
        if dropped.size + twice.size + kept.size < weights.size or kept.size == weights.size:
            return None
        parts = [f"columns {ranges(map(int, dropped))} missing"] if dropped.size else []
        parts += [f"columns {ranges(map(int, twice))} counted twice"] if twice.size else []
        return _inner(" and ".join(parts), weights.size, 0.96, None)
    out = output_of(case)
    if out is None or not out.finite:
        return None
    found = best((out.left_over(out.attend(_only(out, kept))), words) for kept, words in _subsets(out.q.shape[3]))
    return None if found is None else _inner(found[1], out.q.shape[3], rank_of(found[0]), 1 - found[0])


def _inner(words: str, d: int, rank: float, explained: float | None) -> Signature:
    message = f"Q·Kᵀ is summed over the wrong columns of D = {d}: {words}"
    cure = "let the loop cover all of D, and add up the lanes' partial sums (warp_sum) before a score is used"
    return Signature("inner_columns", message, cure, rank, explained)


def _weights(case: Case) -> Array | None:
    """Return by least squares how often each column of D is in the observed scores; None if that does not fit."""
    first, problem = case.divergence, case.attention
    if first is None or problem is None or first.stage not in SCORES or case.algorithm is None:
        return None
    b, h, row, key = np.nonzero(first.observed & np.isfinite(first.actual) & np.isfinite(first.expected))
    d = problem.q.shape[3]
    if row.size < 4 * d:
        return None
    chosen = np.unique(np.linspace(0, row.size - 1, 16 * d).astype(int))
    b, h, row, key = (x[chosen] for x in (b, h, row, key))
    at = key + first.keys.start
    q = problem.q[b, h, row].astype(np.float64)
    terms = q * problem.k[b, h // problem.workload.shape.group, at].astype(np.float64)
    scale = 1.0 if first.stage == "products" else 1 / np.sqrt(d) / np.log(case.algorithm.exp_base)
    actual = first.actual[b, h, row, key]
    weights, _, rank, _ = np.linalg.lstsq(terms * scale, actual, rcond=None)
    if rank < d or np.linalg.norm(terms * scale @ weights - actual) > 0.01 * np.linalg.norm(actual):
        return None
    return np.asarray(weights)


def _only(out: Output, kept: Array) -> Array:
    return out.scores(q=out.q * kept, k=out.k)


def _subsets(d: int) -> Iterator[tuple[Array, str]]:
    column = np.arange(d)
    for lanes in (32, 16, 8):
        if d > lanes:
            yield column % lanes == 0, f"only every {lanes}th, one lane's partial sum"
            yield column < d // lanes, f"only the first {d // lanes}, one lane's partial sum"
            yield column < d // lanes * lanes, f"the last {d % lanes} missing"
            yield column < lanes, f"only the first {lanes}"
            yield column < d - lanes, f"the last {lanes} missing"
    yield column < d // 2, f"only the first half, {d // 2} of {d}"
    yield column < d - 1, "the last one missing"
    yield column > 0, "the first one missing"
