"""Right attention in NumPy, in pieces: a wrong implementation is one of these with a single piece changed.

`plain` is float64 over all keys at once; `online` is float32 over tiles, with a given number of splits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from weft.attention.dtypes import Array, numpy_dtype, rounded
from weft.attention.merge import Partial, merge, sink_partials
from weft.attention.reference import Attended, default_scale

from .attention_problem import AttentionProblem
from .task import Outputs

Step = Callable[[Partial, Array, Array], Partial]
"""State, masked scores (…, n) and V (…, n, d) of a tile → state."""
Join = Callable[[Sequence[Partial]], Attended]
Pick = Callable[[list[int]], list[int]]
"""All tiles → the tiles that are computed."""


def per_query_head(x: Array, problem: AttentionProblem) -> Array:
    """Return K or V (or their scales) with one head per query head."""
    return np.repeat(x, problem.workload.shape.group, axis=1)


def mask_of(problem: AttentionProblem) -> Array:
    """(sq, skv), or (b, 1, sq, skv)."""
    return problem.mask


def finish(problem: AttentionProblem, o: Array, lse: Array) -> Attended:
    """Return O in the workload's type, LSE in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        return Attended(o.astype(numpy_dtype(problem.workload.dtype)), lse.astype(np.float32))


def scores(
    problem: AttentionProblem, *, q: Array | None = None, k: Array | None = None, scale: float | None = None
) -> Array:
    """Return the logits in float64, not masked: q·kᵀ·scale, capped and biased. k has one head per query head."""
    q = problem.q if q is None else q
    k = per_query_head(problem.k, problem) if k is None else k
    factor = (problem.contract.scale or default_scale(problem.workload.shape.d)) if scale is None else scale
    return problem.logits.of(q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3) * factor)


def plain(
    problem: AttentionProblem, *, s: Array | None = None, v: Array | None = None, mask: Array | None = None
) -> Attended:
    """Return softmax(s)·v; s and v have one head per query head."""
    s = scores(problem) if s is None else s
    v = per_query_head(problem.v, problem) if v is None else v
    weights, lse = problem.logits.softmax(np.where(mask_of(problem) if mask is None else mask, s, -np.inf))
    return finish(problem, weights @ v.astype(np.float64), lse)


def right_step(state: Partial, s: Array, v: Array) -> Partial:
    """Return U and l rescaled by exp(m_old - m_new), plus this tile."""
    m = np.maximum(state.m, s.max(axis=-1))
    shift = finite(m)
    p, rescale = np.exp(s - shift[..., None]), np.exp(state.m - shift)
    return Partial(state.o * rescale[..., None] + p @ v, m, state.l * rescale + p.sum(axis=-1))


def finite(m: Array) -> Array:
    """Return what to subtract from scores: 0 for a row that has seen no key."""
    return np.where(np.isneginf(m), np.float32(0), m)


def every_tile(tiles: list[int]) -> list[int]:
    return tiles


def online(
    problem: AttentionProblem,
    *,
    tile: int = 32,
    splits: int = 1,
    step: Step = right_step,
    join: Join = merge,
    pick: Pick = every_tile,
) -> Attended:
    """Compute online softmax in float32 over tiles of keys; splits have adjacent tiles, later ones may be empty."""
    shape = problem.workload.shape
    s = np.where(mask_of(problem), scores(problem), -np.inf).astype(np.float32)
    v = per_query_head(problem.v, problem).astype(np.float32)
    tiles = pick(list(range(-(-shape.skv // tile))))
    share = -(-len(tiles) // splits)
    partials = []
    for split in range(splits):
        state = Partial(
            np.zeros(shape.q, np.float32), np.full(shape.lse, -np.inf, np.float32), np.zeros(shape.lse, np.float32)
        )
        for index in tiles[split * share :][:share]:
            keys = slice(index * tile, (index + 1) * tile)
            state = step(state, s[..., keys], v[:, :, keys])
        partials.append(state)
    return finish(problem, *join([*partials, *sink_partials(problem.logits.sinks, partials[0])]))


def _short_operands(problem: AttentionProblem) -> Attended:
    """Round inputs to the output's type for the tensor cores, which changes decoded 8-bit inputs."""
    q, k, v = (rounded(x, problem.workload.dtype) for x in (problem.q, problem.k, problem.v))
    return plain(replace(problem, q=q, k=k, v=v))


def _tensor_core(problem: AttentionProblem, tile: int, *, lag: float = 0.0, l_of_short_p: bool = False) -> Attended:
    """Round P to the output's type before P·V; the maximum is updated when scores exceed it by more than `lag`."""
    dtype = problem.workload.dtype

    def step(state: Partial, s: Array, v: Array) -> Partial:
        top = s.max(axis=-1)
        m = np.where(top > state.m + np.float32(lag), top, state.m)
        shift = finite(m)
        p, rescale = np.exp(s - shift[..., None]), np.exp(state.m - shift)
        short = rounded(p, dtype)
        l = state.l * rescale + (short if l_of_short_p else p).sum(axis=-1)
        return Partial(state.o * rescale[..., None] + short @ v, m, l)

    return online(problem, tile=tile, step=step)


def _right(run: Callable[[AttentionProblem], Attended]) -> Callable[[AttentionProblem], Outputs]:
    return lambda problem: problem.packed(run(problem)._asdict())


RIGHT: Mapping[str, Callable[[AttentionProblem], Outputs]] = {
    "float64": _right(plain),
    "online_32": _right(partial(online, tile=32)),
    "online_64": _right(partial(online, tile=64)),
    "split_4": _right(partial(online, splits=4)),
    "short_p_32": _right(partial(_tensor_core, tile=32)),
    "short_p_64": _right(partial(_tensor_core, tile=64)),
    "short_l": _right(partial(_tensor_core, tile=16, l_of_short_p=True)),
    "lazy_maximum": _right(partial(_tensor_core, tile=32, lag=5.5)),
    "short_operands": _right(_short_operands),
}
"""Right implementations: a gate that rejects one of them is wrong."""
