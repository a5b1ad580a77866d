"""Right attention with one change: wrong scores, masks, heads and positions, and outputs that were not computed."""

import math
from dataclasses import replace
from types import EllipsisType

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.reference import Attended, Causal
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import finish, mask_of, per_query_head, plain, scores

from .wrong import wrong

TAIL = 16
"""Rows of a tensor-core fragment: the rows after the last full fragment are the tail."""


def _o(problem: AttentionProblem, o: Array) -> Attended:
    """Return another O with the right LSE."""
    return finish(problem, np.broadcast_to(o, problem.q.shape), plain(problem).lse)


def _with_o(problem: AttentionProblem, place: tuple[int | slice | EllipsisType, ...], value: float) -> Attended:
    """Return the right O with a part of it multiplied."""
    o, lse = plain(problem)
    o = o.copy()
    o[place] = o[place].astype(np.float64) * value
    return Attended(o, lse)


def _v(problem: AttentionProblem) -> Array:
    return per_query_head(problem.v, problem).astype(np.float64)


def _another_call(problem: AttentionProblem) -> AttentionProblem:
    """Return inputs of the same distribution, as a previous call may have had."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.permuted(rng.permuted(x, axis=2), axis=3) for x in (problem.q, problem.k, problem.v))
    return replace(problem, q=q, k=k, v=v)


# Outputs that were not computed.


def zeros(problem: AttentionProblem) -> Attended:
    return _o(problem, np.zeros(1))


def nan(problem: AttentionProblem) -> Attended:
    return _o(problem, np.full(1, np.nan))


def one_nan(problem: AttentionProblem) -> Attended:
    return _with_o(problem, (0, 0, 0, 0), np.nan)


def stale_output(problem: AttentionProblem) -> Attended:
    return plain(_another_call(problem))


def only_seed_0(problem: AttentionProblem) -> Attended:
    return plain(problem if problem.workload.seed == 0 else _another_call(problem))


def only_whole_tiles(problem: AttentionProblem) -> Attended:
    shape = problem.workload.shape
    return plain(problem) if shape.sq % 64 == shape.skv % 64 == 0 else stale_output(problem)


def mean_v(problem: AttentionProblem) -> Attended:
    return _o(problem, _v(problem).mean(axis=2, keepdims=True))


def prefix_mean(problem: AttentionProblem) -> Attended:
    shape = problem.workload.shape
    sums = _v(problem).cumsum(axis=2) / np.arange(1, shape.skv + 1)[:, None]
    return _o(problem, sums[:, :, np.minimum(np.arange(shape.sq), shape.skv - 1)])


def uniform_p(problem: AttentionProblem) -> Attended:
    return plain(problem, s=np.zeros_like(scores(problem)))


def v_copied(problem: AttentionProblem) -> Attended:
    shape = problem.workload.shape
    return _o(problem, _v(problem)[:, :, np.arange(shape.sq) % shape.skv])


# Scores.


def no_scale(problem: AttentionProblem) -> Attended:
    return plain(problem, s=scores(problem, scale=1.0))


def scale_twice(problem: AttentionProblem) -> Attended:
    return plain(problem, s=scores(problem, scale=1 / problem.workload.shape.d))


def scale_098(problem: AttentionProblem) -> Attended:
    return plain(problem, s=0.98 * scores(problem))


def scale_of_64(problem: AttentionProblem) -> Attended:
    return plain(problem, s=scores(problem, scale=1 / 8))


def base_2(problem: AttentionProblem) -> Attended:
    return plain(problem, s=scores(problem) * math.log(2))


def k_not_transposed(problem: AttentionProblem) -> Attended:
    k = per_query_head(problem.k, problem)
    b, h, skv, d = k.shape
    return plain(problem, s=scores(problem, k=k.reshape(b, h, d, skv).swapaxes(2, 3)))


def v_transposed(problem: AttentionProblem) -> Attended:
    b, h, skv, d = _v(problem).shape
    return plain(problem, v=_v(problem).reshape(b, h, d, skv).swapaxes(2, 3))


def last_channel_of_q(problem: AttentionProblem) -> Attended:
    q = problem.q.copy()
    q[..., -1] = 0
    return plain(problem, s=scores(problem, q=q))


def half_d(problem: AttentionProblem) -> Attended:
    half = problem.workload.shape.d // 2
    k = per_query_head(problem.k, problem)
    return plain(problem, s=scores(problem, q=problem.q[..., :half], k=k[..., :half]))


# Masks.


def _shifted(problem: AttentionProblem, by: int) -> Attended:
    """Return attention with the causal diagonal moved by some keys."""
    off = 0 if problem.causal is None else by
    return plain(problem, mask=problem.contract.mask(problem.workload.shape, problem.causal, off=off))


def causal_sees_next(problem: AttentionProblem) -> Attended:
    return _shifted(problem, 1)


def causal_misses_self(problem: AttentionProblem) -> Attended:
    return _shifted(problem, -1)


def causal_ignored(problem: AttentionProblem) -> Attended:
    return plain(problem, mask=np.ones_like(mask_of(problem)))


def wrong_alignment(problem: AttentionProblem) -> Attended:
    other: dict[Causal, Causal] = {None: None, "top_left": "bottom_right", "bottom_right": "top_left"}
    return plain(problem, mask=problem.contract.mask(problem.workload.shape, other[problem.causal]))


def masked_with_zero(problem: AttentionProblem) -> Attended:
    mask = mask_of(problem)
    return plain(problem, s=np.where(mask, scores(problem), 0.0), mask=np.ones_like(mask))


def empty_row_nan(problem: AttentionProblem) -> Attended:
    o, lse = plain(problem)
    return Attended(np.where(np.isneginf(lse)[..., None], o.dtype.type(np.nan), o), lse)


def empty_row_mean(problem: AttentionProblem) -> Attended:
    o, lse = plain(problem)
    mean = _v(problem).mean(axis=2, keepdims=True)
    return Attended(np.where(np.isneginf(lse)[..., None], mean.astype(o.dtype), o), lse)


def padding_counted(problem: AttentionProblem) -> Attended:
    """Keys beyond the end are zeros whose scores are 0, not -inf."""
    shape = problem.workload.shape
    more = -shape.skv % 32
    s = np.where(mask_of(problem), scores(problem), -np.inf)
    s = np.concatenate([s, np.zeros((*s.shape[:3], more))], axis=3)
    weights, lse = problem.logits.softmax(s)
    return finish(problem, weights[..., : shape.skv] @ _v(problem), lse)


# Heads and positions.


def heads_swapped(problem: AttentionProblem) -> Attended:
    o, lse = plain(problem)
    return Attended(o[:, ::-1], lse)


def gqa_interleaved(problem: AttentionProblem) -> Attended:
    shape = problem.workload.shape
    heads = np.arange(shape.hq) % shape.hkv
    return plain(problem, s=scores(problem, k=problem.k[:, heads]), v=problem.v[:, heads])


def batch_0_keys(problem: AttentionProblem) -> Attended:
    k, v = (np.broadcast_to(x[:1], x.shape) for x in (problem.k, problem.v))
    return plain(replace(problem, k=k, v=v))


def one_head_negated(problem: AttentionProblem) -> Attended:
    return _with_o(problem, (slice(None), -1), -1.0)


def tail_rows_zero(problem: AttentionProblem) -> Attended:
    return _with_o(problem, (..., slice(problem.workload.shape.sq // TAIL * TAIL, None), slice(None)), 0.0)


def last_column_zero(problem: AttentionProblem) -> Attended:
    return _with_o(problem, (..., -1), 0.0)


def rows_shifted(problem: AttentionProblem) -> Attended:
    o, lse = plain(problem)
    return Attended(np.roll(o, 1, axis=2), lse)


def output_smaller(problem: AttentionProblem) -> Attended:
    return _with_o(problem, (...,), 0.99)


SDPA_MUTANTS = (
    wrong("zeros", "O is all zeros", zeros),
    wrong("nan", "O is all NaN", nan),
    wrong("one_nan", "one element is NaN", one_nan),
    wrong("stale_output", "O of a previous call", stale_output),
    wrong("only_seed_0", "right for one seed, stale for others", only_seed_0),
    wrong("only_whole_tiles", "right for multiples of 64, stale otherwise", only_whole_tiles),
    wrong("mean_v", "mean of V: never reads Q or K", mean_v),
    wrong("prefix_mean", "mean of V up to the row", prefix_mean),
    wrong("uniform_p", "every visible key weighs the same", uniform_p),
    wrong("v_copied", "O is V", v_copied),
    wrong("no_scale", "no 1/sqrt(D)", no_scale),
    wrong("scale_twice", "1/sqrt(D) applied twice", scale_twice),
    wrong("scale_098", "scale × 0.98", scale_098),
    wrong("scale_of_64", "1/8 as scale whatever D", scale_of_64),
    wrong("base_2", "exp2 without log2(e) in the scale", base_2),
    wrong("k_not_transposed", "Q·K instead of Q·Kᵀ", k_not_transposed),
    wrong("v_transposed", "V read as its transpose", v_transposed),
    wrong("last_channel_of_q", "the last channel is left out of Q·Kᵀ", last_channel_of_q),
    wrong("half_d", "half of D is left out of Q·Kᵀ", half_d),
    wrong("causal_sees_next", "mask off by one: sees the next key", causal_sees_next),
    wrong("causal_misses_self", "mask off by one: misses its own key", causal_misses_self),
    wrong("causal_ignored", "no mask", causal_ignored),
    wrong("wrong_alignment", "mask aligned to the other corner", wrong_alignment),
    wrong("masked_with_zero", "masked scores are 0, not -inf", masked_with_zero),
    wrong("empty_row_nan", "NaN in rows that see no key", empty_row_nan),
    wrong("empty_row_mean", "mean(V) in rows that see no key", empty_row_mean),
    wrong("padding_counted", "keys beyond the end count with score 0", padding_counted),
    wrong("heads_swapped", "heads in reverse order", heads_swapped),
    wrong("gqa_interleaved", "KV head is head mod Hkv, not head / group", gqa_interleaved),
    wrong("batch_0_keys", "K and V of the first batch entry", batch_0_keys),
    wrong("one_head_negated", "the sign of one head is inverted", one_head_negated),
    wrong("tail_rows_zero", "rows after the last full 16 are zero", tail_rows_zero),
    wrong("last_column_zero", "the last column is zero", last_column_zero),
    wrong("rows_shifted", "each row holds its neighbour's result", rows_shifted),
    wrong("output_smaller", "O × 0.99", output_smaller),
)
