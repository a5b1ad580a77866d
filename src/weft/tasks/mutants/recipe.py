"""The FP8 recipe with one piece changed."""

import math
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.e4m3 import E4M3PerBlock, E4M3PerChannel, SmoothedKeys, e4m3_codes, e4m3_values, lse_shift, step_of
from weft.attention.fp8_recipe import P_SCALE, RecipeRun
from weft.attention.quantise import Quantised
from weft.attention.reference import Attended, Causal, visible
from weft.tasks.numpy_attention import finish
from weft.tasks.recipe_problem import RecipeProblem, recipe_of
from weft.tasks.recipe_runs import follow
from weft.tasks.task import Mutant, Outputs

from .small import CLAMPED_AT, NOT_CONVERTED, SKIPPED_BELOW, cut, floored, flushed

TAIL = 16
"""Rows of a tensor-core fragment: the rows after the last full fragment are the tail."""


def _with(method: str, change: Callable[..., object]) -> Callable[[RecipeProblem], Attended]:
    """Return attention in which one method's result is replaced by `change(run, result, *arguments)`."""

    def run(problem: RecipeProblem) -> Attended:
        right = getattr(RecipeRun, method)
        if callable(right):

            def changed(self: RecipeRun, *arguments: object) -> object:
                return change(self, right(self, *arguments), *arguments)

            piece: object = changed
        else:  # a cached property: the quantised value
            piece = property(lambda self: change(self, right.func(self)))
        return follow(problem, type("Wrong", (RecipeRun,), {method: piece}))

    return run


def _o(problem: RecipeProblem, change: Callable[[Array], Array]) -> Attended:
    """Return the right result with another O."""
    o, lse = follow(problem)
    return Attended(change(o.astype(np.float64)).astype(o.dtype), lse)


# Quantisation.


def _k_less(run: RecipeRun, taken_off: Array, right: SmoothedKeys) -> SmoothedKeys:
    """Return K encoded after another value than its mean was subtracted."""
    return SmoothedKeys(*E4M3PerBlock(run.recipe.block_n).encode(run.k.astype(np.float32) - taken_off), right.mean)


def _not_smoothed(run: RecipeRun, right: SmoothedKeys) -> SmoothedKeys:
    return _k_less(run, np.zeros(1, np.float32), right)


def _mean_twice(run: RecipeRun, right: SmoothedKeys) -> SmoothedKeys:
    return _k_less(run, 2 * right.mean[:, :, None], right)


def _mean_of_tile(run: RecipeRun, right: SmoothedKeys) -> SmoothedKeys:
    size = run.recipe.block_n
    tiles = [run.k[:, :, first : first + size].astype(np.float32) for first in range(0, run.shape.skv, size)]
    means = [np.broadcast_to(tile.mean(axis=2, keepdims=True), tile.shape) for tile in tiles]
    return _k_less(run, np.concatenate(means, axis=2), right)


def _first_step(_run: RecipeRun, right: Quantised | SmoothedKeys) -> Quantised | SmoothedKeys:
    return right._replace(scale=np.broadcast_to(right.scale[:, :, :1], right.scale.shape))


def _neighbour_step(_run: RecipeRun, right: Quantised) -> Quantised:
    return right._replace(scale=np.roll(right.scale, 1, axis=2))


def _no_step(_run: RecipeRun, right: Quantised | SmoothedKeys) -> Quantised | SmoothedKeys:
    return right._replace(scale=np.ones_like(right.scale))


def _v_per_head(run: RecipeRun, right: Quantised) -> Quantised:
    step = np.broadcast_to(right.scale.max(axis=2, keepdims=True), right.scale.shape)
    return Quantised(e4m3_codes(run.v, step[:, :, None]), step)


def _k_per_head(run: RecipeRun, right: SmoothedKeys) -> SmoothedKeys:
    k = run.k.astype(np.float32) - right.mean[:, :, None]
    step = np.broadcast_to(right.scale.max(axis=2, keepdims=True), right.scale.shape)
    return right._replace(codes=e4m3_codes(k, E4M3PerBlock(run.recipe.block_n).spread(step, k.shape)), scale=step)


def _largest_240(run: RecipeRun, _right: Quantised) -> Quantised:
    step = step_of(np.abs(run.v.astype(np.float32)).max(axis=2) * np.float32(448 / 240))
    return Quantised(e4m3_codes(run.v, step[:, :, None]), step)


def _toward_zero(run: RecipeRun, right: Quantised) -> Quantised:
    """Return codes of the next smaller magnitude where rounding went up."""
    beyond = np.abs(E4M3PerChannel().decode(*right).astype(np.float64)) > np.abs(run.v.astype(np.float64)) * (1 + 1e-6)
    return right._replace(codes=np.where(beyond, right.codes - 1, right.codes).astype(np.uint8))


def _denormals_lost(_run: RecipeRun, right: Quantised) -> Quantised:
    return right._replace(codes=np.where(right.codes & 0x78, right.codes, 0).astype(np.uint8))


def _e5m2(_run: RecipeRun, right: Quantised) -> Quantised:
    """Return V rounded to two fraction bits."""
    values = e4m3_values(right.codes).astype(ml_dtypes.float8_e5m2).astype(np.float32)
    return right._replace(codes=e4m3_codes(values, np.ones_like(values)))


def _plain_order(_run: RecipeRun, right: Quantised) -> Quantised:
    """Return V's keys in plain order, while the lanes have P in another order."""
    keys = np.arange(right.codes.shape[2])
    place = keys % 16
    order = keys - place + np.array([4 * (i % 8 // 2) + 2 * (i // 8) + i % 2 for i in range(16)])[place]
    return right._replace(codes=right.codes[:, :, np.minimum(order, keys[-1])])


# Weights and sums.


def _p_unscaled(_run: RecipeRun, _right: Array, p: Array) -> Array:
    return rounded(p, "e4m3") * P_SCALE


def _p_truncated(_run: RecipeRun, right: Array, p: Array) -> Array:
    below = (right.astype(ml_dtypes.float8_e4m3fn).view(np.uint8) - 1).astype(np.uint8)
    return np.where(right > p * P_SCALE, e4m3_values(below), right)


def _never_flushed(run: RecipeRun, _right: Array, u: Array, p: Array, v: Array) -> Array:
    return run.matmul(p, v, u)


def _only_first_32_keys(run: RecipeRun, _right: Array, u: Array, p: Array, v: Array) -> Array:
    return u + run.matmul(p[..., :32], v[:, :, :32])


def _fewer_rescaled(_run: RecipeRun, right: Array, u: Array, _rescale: Array) -> Array:
    return np.concatenate([right[..., :8], u[..., 8:]], axis=3)


def _padding_counted(problem: RecipeProblem) -> Attended:
    """Keys beyond the end of the last tile, whose codes are zero, count with their score of 0."""
    b, heads, keys, d = problem.k.shape
    more = -keys % 64
    mean = problem.k.astype(np.float64).mean(axis=2, keepdims=True).astype(problem.k.dtype)
    k = np.concatenate([problem.k, np.broadcast_to(mean, (b, heads, more, d))], axis=2)
    v = np.concatenate([problem.v, np.zeros((b, heads, more, d), problem.v.dtype)], axis=2)
    return follow(problem, k=k, v=v, mask=np.pad(problem.mask, ((0, 0), (0, more)), constant_values=True))


# Masks and heads.


def _masked(change: Callable[[RecipeProblem], Array]) -> Callable[[RecipeProblem], Attended]:
    return lambda problem: follow(problem, mask=change(problem))


def _shifted(by: int) -> Callable[[RecipeProblem], Array]:
    def mask(problem: RecipeProblem) -> Array:
        shape = problem.workload.shape
        if problem.causal is None:
            return problem.mask
        shift = (shape.skv - shape.sq if problem.causal == "bottom_right" else 0) + by
        return np.arange(shape.skv)[None, :] <= np.arange(shape.sq)[:, None] + shift

    return mask


def _other_corner(problem: RecipeProblem) -> Array:
    other: dict[Causal, Causal] = {None: None, "top_left": "bottom_right", "bottom_right": "top_left"}
    sq, skv = problem.mask.shape
    return visible(sq, skv, other[problem.causal])


def _batch_0(problem: RecipeProblem) -> Attended:
    k, v = (np.broadcast_to(x[:1], x.shape) for x in (problem.k, problem.v))
    return follow(problem, k=k, v=v)


def _interleaved(problem: RecipeProblem) -> Attended:
    shape = problem.workload.shape
    heads = np.arange(shape.hq) % shape.hkv
    return follow(problem, k=problem.k[:, heads], v=problem.v[:, heads])


def _scores_times(factor: Callable[[RecipeRun], float]) -> Callable[[RecipeProblem], Attended]:
    return _with("scores", lambda run, right, _keys: right * np.float32(factor(run)))


def _other_tiles(change: Callable[[list[slice]], list[slice]]) -> Callable[[RecipeProblem], Attended]:
    return _with("tiles", lambda _run, right: change(right))


# Results.


def _one_nan(o: Array) -> Array:
    o[0, 0, 0, 0] = np.nan
    return o


def _tail_rows(o: Array) -> Array:
    o[:, :, o.shape[2] // TAIL * TAIL :] = 0
    return o


def _last_column(o: Array) -> Array:
    o[..., -1] = 0
    return o


def _empty_nan(problem: RecipeProblem) -> Attended:
    o, lse = follow(problem)
    return Attended(np.where(np.isneginf(lse)[..., None], o.dtype.type(np.nan), o), lse)


def _mean_v(problem: RecipeProblem) -> Attended:
    mean = problem.v.astype(np.float64).mean(axis=2, keepdims=True).repeat(problem.workload.shape.group, axis=1)
    return _o(problem, lambda o: np.broadcast_to(mean, o.shape))


def _lse(change: Callable[[Array], Array]) -> Callable[[RecipeProblem], Attended]:
    return lambda problem: follow(problem)._replace(lse=change(follow(problem).lse))


def _finite(lse: Array) -> Array:
    return np.where(np.isneginf(lse), 0, lse)


def _lse_of_smoothed(run: RecipeRun, right: Array, _m: Array, _l: Array) -> Array:
    return right - lse_shift(run.q, run.k_coded.mean, run.scale)


def _mean_unscaled(run: RecipeRun, right: Array, _m: Array, _l: Array) -> Array:
    return right + lse_shift(run.q, run.k_coded.mean, 1 - run.scale)


def _mean_of_coded_q(run: RecipeRun, right: Array, _m: Array, _l: Array) -> Array:
    q = E4M3PerBlock(run.recipe.block_m).decode(*run.q_coded)
    return right + lse_shift(q.astype(np.float64) - run.q, run.k_coded.mean, run.scale)


# Small errors, or errors only for values that most inputs do not contain.


def _unrounded(change: Callable[[Array, str], Array]) -> Callable[[RecipeProblem], Attended]:
    """Return the right result with O replaced by `change(o, type)` before it is rounded to its type."""

    def run(problem: RecipeProblem) -> Attended:
        dtype = problem.workload.dtype
        followed = problem.followed(recipe_of({}, dtype))
        return finish(problem, change(followed.unrounded.astype(np.float64), dtype), followed.lse)

    return run


def _small_skipped(run: RecipeRun, right: Array, p: Array) -> Array:
    return np.where(p < SKIPPED_BELOW, np.float32(0), right)


def _clamped(run: RecipeRun, right: Array, p: Array) -> Array:
    least = np.float32(math.exp(CLAMPED_AT))
    return np.where(p > 0, rounded(np.maximum(p, least) * P_SCALE, "e4m3"), right)


def _zero_query_nan(problem: RecipeProblem) -> Attended:
    zero = (problem.q == 0).all(axis=3, keepdims=True)
    return _o(problem, lambda o: np.where(zero, np.nan, o))


def _zero_v_nan(problem: RecipeProblem) -> Attended:
    zero = (problem.v == 0).all(axis=(2, 3), keepdims=True).repeat(problem.workload.shape.group, axis=1)
    return _o(problem, lambda o: np.where(zero, np.nan, o))


def _row(
    name: str,
    what: str,
    run: Callable[[RecipeProblem], Attended],
    *,
    breaks: str = "o",
    excluded: Mapping[str, str] | None = None,
) -> Mutant:
    def outputs(problem: RecipeProblem) -> Outputs:
        o, lse = run(problem)
        return {"o": o, "lse": lse.astype(np.float32)}

    return Mutant(name, what, outputs, breaks, excluded or {})


RECIPE_MUTANTS = (
    _row("k_not_smoothed", "K's mean is not subtracted", _with("k_coded", _not_smoothed)),
    _row("mean_of_tile", "the mean of each tile is subtracted, not that of all keys", _with("k_coded", _mean_of_tile)),
    _row("mean_twice", "K's mean is subtracted twice", _with("k_coded", _mean_twice)),
    _row("q_step_of_block_0", "every block of Q has the first one's step", _with("q_coded", _first_step)),
    _row("k_step_of_block_0", "every block of K has the first one's step", _with("k_coded", _first_step)),
    _row("v_step_of_channel_0", "every channel of V has the first one's step", _with("v_coded", _first_step)),
    _row("v_step_of_neighbour", "a channel of V has its neighbour's step", _with("v_coded", _neighbour_step)),
    _row("q_step_forgotten", "Q's step is left out", _with("q_coded", _no_step)),
    _row("k_step_forgotten", "K's step is left out", _with("k_coded", _no_step)),
    _row("v_step_forgotten", "V's step is left out", _with("v_coded", _no_step)),
    _row("v_per_head", "one step for all channels of V", _with("v_coded", _v_per_head)),
    _row("k_per_head", "one step for all keys", _with("k_coded", _k_per_head)),
    _row("largest_240", "V's largest magnitude becomes 240", _with("v_coded", _largest_240)),
    _row("codes_truncated", "V's codes are rounded toward zero", _with("v_coded", _toward_zero)),
    _row("denormals_lost", "V's denormal codes are zero", _with("v_coded", _denormals_lost)),
    _row("v_in_e5m2", "V is rounded to E5M2", _with("v_coded", _e5m2)),
    _row("v_keys_in_plain_order", "V's keys are in plain order, P's are not", _with("v_coded", _plain_order)),
    _row("p_unscaled", "P is rounded to E4M3 without 2^8", _with("p_values", _p_unscaled)),
    _row("p_scale_kept", "O is not divided by 2^8", lambda problem: _o(problem, lambda o: o * 256)),
    _row("p_truncated", "P is rounded toward zero", _with("p_values", _p_truncated)),
    _row(
        "p_in_f16", "P is not rounded to E4M3", _with("p_values", lambda _run, _right, p: rounded(p * P_SCALE, "f16"))
    ),
    _row("never_flushed", "the tensor core sums all keys", _with("accumulate", _never_flushed)),
    _row("half_tile", "the second 32 keys of a flush are left out", _with("accumulate", _only_first_32_keys)),
    _row("u_not_rescaled", "U is not rescaled", _with("rescaled", lambda _run, _right, u, _rescale: u)),
    _row("u_rescaled_in_8_columns", "only the first 8 columns of U are rescaled", _with("rescaled", _fewer_rescaled)),
    _row(
        "not_normalised", "O is not divided by l", _with("normalised", lambda _run, right, _u, l: right * l[..., None])
    ),
    _row("last_tile_dropped", "the last tile of keys is left out", _other_tiles(lambda tiles: tiles[:-1] or tiles)),
    _row("first_tile_twice", "the first tile of keys counts twice", _other_tiles(lambda tiles: [tiles[0], *tiles])),
    _row("padding_counted", "keys beyond the end count with score 0", _padding_counted),
    _row("no_scale", "no 1/sqrt(D)", _scores_times(lambda run: 1 / run.scale)),
    _row("scale_twice", "1/sqrt(D) applied twice", _scores_times(lambda run: run.scale)),
    _row("scale_098", "scale × 0.98", _scores_times(lambda run: 0.98)),
    _row("base_2", "powers of two without log2(e) in the scale", _scores_times(lambda run: math.log(2))),
    _row("causal_sees_next", "mask off by one: sees the next key", _masked(_shifted(1))),
    _row("causal_misses_self", "mask off by one: misses its own key", _masked(_shifted(-1))),
    _row("causal_ignored", "no mask", _masked(lambda problem: np.ones_like(problem.mask))),
    _row("wrong_alignment", "mask aligned to the other corner", _masked(_other_corner)),
    _row("empty_row_nan", "NaN in rows that see no key", _empty_nan),
    _row("gqa_interleaved", "KV head is head mod Hkv, not head / group", _interleaved),
    _row("batch_0_keys", "K and V of the first batch entry", _batch_0),
    _row("heads_swapped", "heads in reverse order", lambda problem: _o(problem, lambda o: o[:, ::-1])),
    _row(
        "rows_shifted", "each row holds its neighbour's result", lambda problem: _o(problem, lambda o: np.roll(o, 1, 2))
    ),
    _row("zeros", "O is all zeros", lambda problem: _o(problem, lambda o: 0 * o)),
    _row("one_nan", "one element is NaN", lambda problem: _o(problem, _one_nan)),
    _row("mean_v", "mean of V: never reads Q or K", _mean_v),
    _row("output_smaller", "O × 0.99", lambda problem: _o(problem, lambda o: 0.99 * o)),
    _row("tail_rows_zero", "rows after the last full 16 are zero", lambda problem: _o(problem, _tail_rows)),
    _row("last_column_zero", "the last column is zero", lambda problem: _o(problem, _last_column)),
    _row("truncated_output", "O is truncated toward zero, not rounded", _unrounded(cut), excluded=NOT_CONVERTED),
    _row("floored_output", "O is rounded toward -inf, not to nearest", _unrounded(floored), excluded=NOT_CONVERTED),
    _row("output_larger", "O × (1 + 2^-11)", _unrounded(lambda o, _dtype: o * (1 + 2.0**-11))),
    _row("flushed_output", "outputs below 1e-6 become zero", _unrounded(lambda o, _dtype: flushed(o))),
    _row("small_weights_skipped", "weights below 2e-4 of the largest are skipped", _with("p_values", _small_skipped)),
    _row("exponent_clamped", "exp(max(x, -12))", _with("p_values", _clamped)),
    _row("zero_query_nan", "NaN for a query of zeros", _zero_query_nan),
    _row("zero_v_nan", "NaN where all of V is zero", _zero_v_nan),
    _row("lse_of_smoothed", "LSE lacks q·mean", _with("log_sum", _lse_of_smoothed), breaks="lse"),
    _row("lse_mean_of_coded_q", "LSE has q·mean of Q's codes", _with("log_sum", _mean_of_coded_q), breaks="lse"),
    _row("lse_mean_unscaled", "LSE has q·mean without the scale", _with("log_sum", _mean_unscaled), breaks="lse"),
    _row("lse_log2", "LSE in powers of two", _lse(lambda lse: lse / math.log(2)), breaks="lse"),
    _row("lse_of_scaled_p", "LSE of P × 2^8", _lse(lambda lse: lse + math.log(256)), breaks="lse"),
    _row("lse_empty_zero", "LSE is 0 in rows that see no key", _lse(_finite), breaks="lse"),
)
