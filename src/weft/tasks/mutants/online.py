"""The tiled algorithm with one change: wrong online softmax, splits, rounding and LSE."""

import math
from collections.abc import Sequence

import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.merge import Partial, merge
from weft.attention.reference import Attended, default_scale
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.numpy_attention import finish, finite, mask_of, online, per_query_head, plain, right_step, scores

from .wrong import wrong


def no_max(problem: AttentionProblem) -> Attended:
    p = np.exp(np.where(mask_of(problem), scores(problem), -np.inf).astype(np.float32))
    l = p.sum(axis=-1)
    return finish(
        problem,
        p @ per_query_head(problem.v, problem).astype(np.float32) / np.where(l == 0, 1, l)[..., None],
        np.log(l),
    )


def last_tile_dropped(problem: AttentionProblem) -> Attended:
    return online(problem, pick=lambda tiles: tiles[:-1] or tiles)


def first_tile_twice(problem: AttentionProblem) -> Attended:
    return online(problem, pick=lambda tiles: [0, *tiles])


def ragged_tile_dropped(problem: AttentionProblem) -> Attended:
    return online(problem, pick=lambda tiles: tiles[: problem.workload.shape.skv // 32])


def l_of_previous_tile(problem: AttentionProblem) -> Attended:
    def step(state: Partial, s: Array, v: Array) -> Partial:
        new = right_step(state, s, v)
        return new._replace(l=np.where(state.l > 0, state.l * np.exp(state.m - finite(new.m)), new.l))

    return online(problem, step=step)


def _rescaled(problem: AttentionProblem, *, u: bool, l: bool, columns: slice = slice(0)) -> Attended:
    """Rescale only the requested parts; `columns` of U always."""

    def step(state: Partial, s: Array, v: Array) -> Partial:
        new = right_step(state, s, v)
        missing = 1 - np.exp(state.m - finite(new.m))
        # Without the factor r, (1 - r) times the old value is too much.
        extra = state.o * missing[..., None]
        extra[..., columns] = 0
        return Partial(new.o + (0 if u else extra), new.m, new.l + (0 if l else state.l * missing))

    return online(problem, step=step)


def no_rescale(problem: AttentionProblem) -> Attended:
    return _rescaled(problem, u=False, l=False)


def u_not_rescaled(problem: AttentionProblem) -> Attended:
    return _rescaled(problem, u=False, l=True)


def l_not_rescaled(problem: AttentionProblem) -> Attended:
    return _rescaled(problem, u=True, l=False)


def column_0_rescaled(problem: AttentionProblem) -> Attended:
    return _rescaled(problem, u=False, l=True, columns=slice(1))


def max_of_tile(problem: AttentionProblem) -> Attended:
    def step(state: Partial, s: Array, v: Array) -> Partial:
        tile = right_step(Partial(0 * state.o, np.full_like(state.m, -np.inf), 0 * state.l), s, v)
        return Partial(state.o + tile.o, tile.m, state.l + tile.l)

    return online(problem, step=step)


def not_normalised(problem: AttentionProblem) -> Attended:
    return online(problem, join=lambda partials: Attended(partials[0].o, merge(partials).lse))


def merge_unweighted(problem: AttentionProblem) -> Attended:
    def join(partials: Sequence[Partial]) -> Attended:
        seen = [part.o / np.where(part.l == 0, 1, part.l)[..., None] for part in partials]
        return Attended(np.mean(seen, axis=0), merge(partials).lse)

    return online(problem, splits=2, join=join)


def merge_without_max(problem: AttentionProblem) -> Attended:
    def join(partials: Sequence[Partial]) -> Attended:
        l = np.sum([part.l for part in partials], axis=0)
        u = np.sum([part.o for part in partials], axis=0)
        return Attended(u / np.where(l == 0, 1, l)[..., None], merge(partials).lse)

    return online(problem, splits=2, join=join)


def merge_counts_l_twice(problem: AttentionProblem) -> Attended:
    def join(partials: Sequence[Partial]) -> Attended:
        doubled = [part._replace(o=part.o * part.l[..., None]) for part in partials]
        return Attended(merge(doubled).o, merge(partials).lse)

    return online(problem, splits=2, join=join)


def split_counted_twice(problem: AttentionProblem) -> Attended:
    return online(problem, splits=2, join=lambda partials: merge([*partials, partials[0]]))


def empty_split_nan(problem: AttentionProblem) -> Attended:
    def join(partials: Sequence[Partial]) -> Attended:
        whole = merge(partials)
        o = np.sum([np.exp(p.m + np.log(p.l) - whole.lse)[..., None] * p.o / p.l[..., None] for p in partials], axis=0)
        return Attended(o, whole.lse)

    return online(problem, splits=4, join=join)


# Rounding.


def _accumulated(problem: AttentionProblem, dtype: str) -> Attended:
    def step(state: Partial, s: Array, v: Array) -> Partial:
        new = right_step(state, s, v)
        return new._replace(o=rounded(new.o, dtype))

    return online(problem, step=step)


def bf16_accumulate(problem: AttentionProblem) -> Attended:
    return _accumulated(problem, "bf16")


def f16_accumulate(problem: AttentionProblem) -> Attended:
    return _accumulated(problem, "f16")


def p_in_e4m3(problem: AttentionProblem) -> Attended:
    def step(state: Partial, s: Array, v: Array) -> Partial:
        new = right_step(state, s, v)
        p = np.exp(s - finite(new.m)[..., None])
        return new._replace(o=new.o + (rounded(p, "e4m3") - p) @ v)

    return online(problem, step=step)


# LSE.


def _lse(problem: AttentionProblem, lse: Array) -> Attended:
    return finish(problem, plain(problem).o, lse)


def lse_log2(problem: AttentionProblem) -> Attended:
    return _lse(problem, plain(problem).lse / np.float32(math.log(2)))


def lse_unscaled(problem: AttentionProblem) -> Attended:
    return _lse(problem, plain(problem, s=scores(problem, scale=1.0)).lse)


def lse_without_max(problem: AttentionProblem) -> Attended:
    s = np.where(mask_of(problem), scores(problem), -np.inf)
    return _lse(problem, plain(problem).lse - finite(s.max(axis=-1)))


def lse_is_max(problem: AttentionProblem) -> Attended:
    return _lse(problem, np.where(mask_of(problem), scores(problem), -np.inf).max(axis=-1))


def lse_empty_zero(problem: AttentionProblem) -> Attended:
    return _lse(problem, finite(plain(problem).lse))


def lse_scale_twice(problem: AttentionProblem) -> Attended:
    return _lse(problem, plain(problem).lse * default_scale(problem.workload.shape.d))


def lse_of_last_tile(problem: AttentionProblem) -> Attended:
    return _lse(problem, online(problem, pick=lambda tiles: tiles[-1:]).lse)


ONLINE_MUTANTS = (
    wrong("no_max", "maximum not subtracted: exp overflows float32", no_max),
    wrong("last_tile_dropped", "the last KV tile is left out", last_tile_dropped),
    wrong("ragged_tile_dropped", "a partial KV tile is left out", ragged_tile_dropped),
    wrong("first_tile_twice", "the first KV tile counts twice", first_tile_twice),
    wrong("l_of_previous_tile", "l lacks the newest tile", l_of_previous_tile),
    wrong("no_rescale", "neither U nor l is rescaled", no_rescale),
    wrong("u_not_rescaled", "U is not rescaled", u_not_rescaled),
    wrong("l_not_rescaled", "l is not rescaled", l_not_rescaled),
    wrong("column_0_rescaled", "only column 0 of U is rescaled", column_0_rescaled),
    wrong("max_of_tile", "the maximum is the tile's, nothing is rescaled", max_of_tile),
    wrong("not_normalised", "O is not divided by l", not_normalised),
    wrong("merge_unweighted", "splits are averaged", merge_unweighted),
    wrong("merge_without_max", "splits are summed without exp(m - M)", merge_without_max),
    wrong("merge_counts_l_twice", "unnormalised splits are weighted by l once more", merge_counts_l_twice),
    wrong("split_counted_twice", "one split is merged twice", split_counted_twice),
    wrong("empty_split_nan", "an empty split is divided by its l = 0", empty_split_nan),
    wrong("bf16_accumulate", "U is rounded to bf16 at each tile", bf16_accumulate),
    wrong("f16_accumulate", "U is rounded to f16 at each tile", f16_accumulate),
    wrong("p_in_e4m3", "P is rounded to e4m3 unscaled", p_in_e4m3),
    wrong("lse_log2", "LSE in powers of two", lse_log2, breaks="lse"),
    wrong("lse_unscaled", "LSE of scores without the scale", lse_unscaled, breaks="lse"),
    wrong("lse_without_max", "LSE lacks the maximum", lse_without_max, breaks="lse"),
    wrong("lse_is_max", "LSE is the maximum", lse_is_max, breaks="lse"),
    wrong("lse_scale_twice", "LSE × 1/sqrt(D)", lse_scale_twice, breaks="lse"),
    wrong("lse_of_last_tile", "LSE of the last KV tile only", lse_of_last_tile, breaks="lse"),
    wrong("lse_empty_zero", "LSE is 0, not -inf, in rows that see no key", lse_empty_zero, breaks="lse"),
)
