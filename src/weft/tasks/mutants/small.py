"""Small errors, or errors only for rare values: truncated, flushed, skipped or clamped numbers, or NaN at zero."""

from collections.abc import Callable, Sequence

import numpy as np

from weft.attention.dtypes import Array, rounded, ulp
from weft.attention.merge import Partial, merge
from weft.attention.reference import Attended
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import finish, finite, mask_of, online, per_query_head, plain, scores

from .wrong import wrong

FLUSHED_BELOW = 1e-6
SKIPPED_BELOW = 2e-4
CLAMPED_AT = -12.0


def cut(values: Array, dtype: str) -> Array:
    """Return values of a type, rounded toward zero instead of to nearest."""
    near = rounded(values, dtype)
    return np.where(np.abs(near) > np.abs(values), near - np.sign(values) * ulp(values, dtype), near)


def floored(values: Array, dtype: str) -> Array:
    """Return values rounded toward -inf."""
    near = rounded(values, dtype)
    return np.where(near > values, near - ulp(values, dtype), near)


def flushed(values: Array) -> Array:
    return np.where(np.abs(values) < FLUSHED_BELOW, 0.0, values)


# Output.


def truncated_output(problem: AttentionProblem) -> Attended:
    return finish(problem, cut(problem.gold.o, problem.workload.dtype), problem.gold.lse)


def floored_output(problem: AttentionProblem) -> Attended:
    return finish(problem, floored(problem.gold.o, problem.workload.dtype), problem.gold.lse)


def output_larger(problem: AttentionProblem) -> Attended:
    return finish(problem, problem.gold.o * (1 + 2.0**-11), problem.gold.lse)


def flushed_output(problem: AttentionProblem) -> Attended:
    return finish(problem, flushed(problem.gold.o), problem.gold.lse)


# Weights.


def _weights(
    problem: AttentionProblem, exp: Callable[[Array], Array], p_of: Callable[[Array], Array] = lambda p: p
) -> Attended:
    """Return attention with another exponential for P and l, and with P changed before P·V; the right LSE."""

    def step(state: Partial, s: Array, v: Array) -> Partial:
        m = np.maximum(state.m, s.max(axis=-1))
        shift = finite(m)
        p = np.where(np.isneginf(s), np.float32(0), exp(s - shift[..., None]))
        rescale = np.exp(state.m - shift)
        return Partial(state.o * rescale[..., None] + p_of(p) @ v, m, state.l * rescale + p.sum(axis=-1))

    return Attended(online(problem, step=step).o, plain(problem).lse)


def small_weights_skipped(problem: AttentionProblem) -> Attended:
    def exp(x: Array) -> Array:
        p = np.exp(x)
        return np.where(p < SKIPPED_BELOW, np.float32(0), p)

    return _weights(problem, exp)


def exponent_clamped(problem: AttentionProblem) -> Attended:
    return _weights(problem, lambda x: np.exp(np.maximum(x, np.float32(CLAMPED_AT))))


def p_truncated(problem: AttentionProblem) -> Attended:
    dtype = problem.workload.dtype
    return _weights(problem, np.exp, lambda p: cut(p, "f16" if dtype == "f32" else dtype).astype(np.float32))


def p_in_bf16(problem: AttentionProblem) -> Attended:
    return _weights(problem, np.exp, lambda p: rounded(p, "bf16"))


def last_64th_dropped(problem: AttentionProblem) -> Attended:
    mask = mask_of(problem).copy()
    skv = problem.workload.shape.skv
    mask[..., skv - skv // 64 :] &= np.arange(skv)[skv - skv // 64 :] == 0
    return plain(problem, mask=mask)


# Sums.


def l_in_f16(problem: AttentionProblem) -> Attended:
    """Sum l in f16, key by key."""
    s = np.where(mask_of(problem), scores(problem), -np.inf)
    p = np.exp(s - finite(s.max(axis=-1))[..., None])
    l = np.zeros(s.shape[:3], np.float16)
    for key in range(s.shape[3]):
        l = l + p[..., key].astype(np.float16)
    o = p @ per_query_head(problem.v, problem).astype(np.float64)
    return finish(problem, o / np.where(l == 0, 1, l)[..., None], plain(problem).lse)


def l_plus_epsilon(problem: AttentionProblem) -> Attended:
    def join(partials: Sequence[Partial]) -> Attended:
        return Attended(merge([part._replace(l=part.l + np.float32(1e-3)) for part in partials]).o, merge(partials).lse)

    return online(problem, join=join)


# Zeros.


def _nan_where(problem: AttentionProblem, rows: Array) -> Attended:
    o, lse = plain(problem)
    return Attended(np.where(rows, o.dtype.type(np.nan), o), lse)


def zero_query_nan(problem: AttentionProblem) -> Attended:
    return _nan_where(problem, (problem.q == 0).all(axis=3, keepdims=True))


def zero_key_nan(problem: AttentionProblem) -> Attended:
    zero = per_query_head((problem.k == 0).all(axis=3), problem)
    return _nan_where(problem, np.any(zero[:, :, None] & mask_of(problem), axis=3, keepdims=True))


def zero_v_nan(problem: AttentionProblem) -> Attended:
    return _nan_where(problem, per_query_head((problem.v == 0).all(axis=(2, 3), keepdims=True), problem))


NOT_CONVERTED = {"f32": "a float32 result is not converted: right orders of its sums differ by more than an ulp"}

SMALL_MUTANTS = (
    wrong("truncated_output", "O is truncated toward zero, not rounded", truncated_output, excluded=NOT_CONVERTED),
    wrong("floored_output", "O is rounded toward -inf, not to nearest", floored_output, excluded=NOT_CONVERTED),
    wrong("output_larger", "O × (1 + 2^-11)", output_larger),
    wrong("flushed_output", "outputs below 1e-6 become zero", flushed_output),
    wrong("small_weights_skipped", "weights below 2e-4 of the largest are skipped", small_weights_skipped),
    wrong("exponent_clamped", "exp(max(x, -12))", exponent_clamped),
    wrong("p_truncated", "P is truncated toward zero to 16 bits", p_truncated),
    wrong(
        "p_in_bf16",
        "P is rounded to bf16 whatever the type",
        p_in_bf16,
        excluded={"bf16": "bf16 is the type: tensor-core kernels do the same"},
    ),
    wrong("last_64th_dropped", "the last 1/64 of the keys is left out", last_64th_dropped),
    wrong("l_in_f16", "l is summed in f16", l_in_f16),
    wrong("l_plus_epsilon", "O is divided by l + 1e-3", l_plus_epsilon),
    wrong("zero_query_nan", "NaN for a query of zeros", zero_query_nan),
    wrong("zero_key_nan", "NaN where a key is all zeros", zero_key_nan),
    wrong("zero_v_nan", "NaN where all of V is zero", zero_v_nan),
)
