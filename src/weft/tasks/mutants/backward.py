"""Wrong backward passes: the formula with one piece changed, and the stage that the change breaks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from weft.attention.backward import Backward, weights_of
from weft.attention.dtypes import Array, numpy_dtype, rounded
from weft.attention.reference import Causal
from weft.tasks.backward_problem import BackwardProblem
from weft.tasks.task import Mutant, Outputs

from .small import cut

TILE = 32
Change = Callable[[BackwardProblem, Array], Array]
"""A problem and the right values of a stage → the wrong ones."""


def finish(problem: BackwardProblem, dq: Array, dk: Array, dv: Array) -> Outputs:
    """Return gradients in the workload's type."""
    dtype = numpy_dtype(problem.workload.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return {"dq": dq.astype(dtype), "dk": dk.astype(dtype), "dv": dv.astype(dtype)}


def pieces(problem: BackwardProblem, **changed: Change) -> Outputs:
    """Return the gradients with some stages changed (`scores`, `p`, `dp`, `delta`, `ds`, `dq`, `dk`, `dv`; `p_of_ds`: P
    only where dS is computed)."""
    call, right = problem.call, problem.gold

    def stage(name: str, value: Array) -> Array:
        return changed[name](problem, value) if name in changed else value

    q, k, v, o, do = (call.wide(name) for name in ("q", "k", "v", "o", "do"))
    scores = stage("scores", right.scores)
    p = stage("p", weights_of(scores, call.lse))
    dp, delta = stage("dp", do @ v.swapaxes(2, 3)), stage("delta", (do * o).sum(axis=-1))
    ds = stage("ds", stage("p_of_ds", p) * (dp - delta[..., None]))
    dq, dk = call.of_scores(ds * call.slope(q @ k.swapaxes(2, 3) * call.factor), q, k)
    dv = call.per_key_head(p.swapaxes(2, 3) @ do)
    return finish(problem, stage("dq", dq), stage("dk", dk), stage("dv", dv))


def _shape_square(problem: BackwardProblem) -> bool:
    return problem.workload.shape.sq == problem.workload.shape.skv


def _unmasked(problem: BackwardProblem, p: Array) -> Array:
    call = problem.call
    raw = call.logits.of(call.wide("q") @ call.wide("k").swapaxes(2, 3) * call.factor)
    return np.where(np.isneginf(call.lse)[..., None], 0.0, weights_of(raw, call.lse))


def _another_mask(problem: BackwardProblem, mask: Array) -> Outputs:
    call = replace(problem.call, mask=mask)
    return _of(problem, call.run())


def _of(problem: BackwardProblem, found: Backward) -> Outputs:
    return finish(problem, found.dq, found.dk, found.dv)


def _shifted(problem: BackwardProblem, by: int) -> Outputs:
    forward = problem.forward
    off = 0 if forward.causal is None else by
    return _another_mask(problem, forward.contract.mask(problem.workload.shape, forward.causal, off=off))


def _other_corner(problem: BackwardProblem) -> Outputs:
    other: dict[Causal, Causal] = {None: None, "top_left": "bottom_right", "bottom_right": "top_left"}
    forward = problem.forward
    return _another_mask(problem, forward.contract.mask(problem.workload.shape, other[forward.causal]))


def _another_call(problem: BackwardProblem) -> Outputs:
    """Return the gradients of permuted inputs, as a previous call may have had."""
    rng = np.random.default_rng(1)
    call = problem.call
    q, k, v, do = (rng.permuted(rng.permuted(x, axis=2), axis=3) for x in (call.q, call.k, call.v, call.do))
    return _of(problem, replace(call, q=q, k=k, v=v, do=do).run())


def _tiled(x: Array, axis: int, pick: Callable[[int], bool]) -> Array:
    """Return x with tiles along an axis set to zero unless picked; `pick` gets the tile's number from the end."""
    x, count = x.copy(), -(-x.shape[axis] // TILE)
    for tile in range(count):
        if not pick(count - 1 - tile):
            at = [slice(None)] * x.ndim
            at[axis] = slice(tile * TILE, (tile + 1) * TILE)
            x[tuple(at)] = 0
    return x


def _tail_zero(x: Array, rows: int = 16) -> Array:
    x = x.copy()
    x[:, :, x.shape[2] // rows * rows :] = 0
    return x


def _one_of_group(problem: BackwardProblem, name: str) -> Array:
    """Return dK or dV of the last query head of each group."""
    call, right = problem.call, problem.gold
    rows, other = (right.p, call.wide("do")) if name == "dv" else (right.ds * call.factor, call.wide("q"))
    return np.asarray((rows.swapaxes(2, 3) @ other)[:, call.group - 1 :: call.group])


def _accumulated(problem: BackwardProblem, dtype: str) -> Array:
    """Return dQ summed over tiles of keys in a short type."""
    call, ds = problem.call, problem.gold.ds * problem.call.factor
    k, dq = call.wide("k"), np.zeros(call.q.shape)
    for first in range(0, k.shape[2], 8):
        dq = rounded(dq + ds[..., first : first + 8] @ k[:, :, first : first + 8], dtype)
    return dq


def _empty_row_nan(problem: BackwardProblem) -> Outputs:
    call = problem.call
    with np.errstate(invalid="ignore"):
        p = np.exp(problem.gold.scores - call.lse.astype(np.float64)[..., None])
    return pieces(problem, p=lambda _, __: p)


def _swapped_groups(problem: BackwardProblem) -> Outputs:
    """KV head is head mod Hkv where the gradient of K and V is added."""
    call, right, shape = problem.call, problem.gold, problem.workload.shape
    b, hq, skv, d = shape.b, shape.hq, shape.skv, shape.d

    def summed(x: Array) -> Array:
        return np.asarray(x.reshape(b, hq // shape.hkv, shape.hkv, skv, d).sum(axis=1))

    dk = summed(right.ds.swapaxes(2, 3) @ call.wide("q") * call.factor)
    return finish(problem, right.dq, dk, summed(right.p.swapaxes(2, 3) @ call.wide("do")))


def _row(name: str, what: str, stage: str, *, excluded: Mapping[str, str] | None = None, **changed: Change) -> Mutant:
    return Mutant(name, what, lambda problem: pieces(problem, **changed), "", excluded or {}, stage)


def _run(name: str, what: str, stage: str, run: Callable[[BackwardProblem], Outputs], **excluded: str) -> Mutant:
    return Mutant(name, what, run, "", excluded, stage)


LOG_2 = math.log(2)
NOT_CONVERTED = {"f32": "a float32 result is not converted: right orders of its sums differ by more than an ulp"}

BACKWARD_MUTANTS = (
    _row("zeros", "dQ is all zeros", "dq", dq=lambda _, x: 0 * x),
    _row("dk_zeros", "dK is all zeros", "dk", dk=lambda _, x: 0 * x),
    _row("dv_zeros", "dV is all zeros", "dv", dv=lambda _, x: 0 * x),
    _row("nan", "dQ is all NaN", "dq", dq=lambda _, x: np.nan * x),
    _run("stale_output", "the gradients of a previous call", "dq", _another_call),
    _run(
        "only_seed_0",
        "right for one seed, stale for others",
        "dq",
        lambda problem: pieces(problem) if problem.workload.seed == 0 else _another_call(problem),
    ),
    _run(
        "only_whole_tiles",
        "right for multiples of 32, stale otherwise",
        "dq",
        lambda problem: (
            _another_call(problem)
            if problem.workload.shape.sq % TILE or problem.workload.shape.skv % TILE
            else pieces(problem)
        ),
    ),
    _row("delta_lost", "dS = P∘dP: delta is not subtracted", "delta", delta=lambda _, x: 0 * x),
    _row("delta_added", "dS = P∘(dP + delta)", "delta", delta=lambda _, x: -x),
    _row("delta_mean", "delta is the mean over D, not the sum", "delta", delta=lambda p, x: x / p.call.q.shape[3]),
    _row("delta_of_do", "delta is the sum of dO∘dO", "delta", delta=lambda p, _: (p.call.wide("do") ** 2).sum(-1)),
    _row("delta_of_neighbour", "delta of the previous row", "delta", delta=lambda _, x: np.roll(x, 1, axis=2)),
    _row("delta_scaled", "delta is multiplied by the scale", "delta", delta=lambda p, x: x * p.call.factor),
    _row("dq_no_scale", "dQ lacks the scale", "dq", dq=lambda p, x: x / p.call.factor),
    _row("dk_no_scale", "dK lacks the scale", "dk", dk=lambda p, x: x / p.call.factor),
    _row("ds_no_scale", "dS lacks the scale: dQ and dK are too large", "ds", ds=lambda p, x: x / p.call.factor),
    _row("ds_scale_twice", "the scale is applied to dS twice", "ds", ds=lambda p, x: x * p.call.factor),
    _row("dv_scaled", "dV is multiplied by the scale", "dv", dv=lambda p, x: x * p.call.factor),
    _row("s_no_scale", "P is computed from S without the scale", "scores", scores=lambda p, x: x / p.call.factor),
    _row("s_scale_098", "scale × 0.98 in S", "scores", scores=lambda _, x: 0.98 * x),
    _row("p_base_2", "exp2 without log2(e)", "p", p=lambda _, x: np.asarray(x**LOG_2)),
    _row(
        "lse_in_log2", "LSE is taken for a logarithm of base 2", "p",
        p=lambda p, _: weights_of(p.gold.scores, p.call.lse * np.float32(LOG_2)),
    ),
    _row(
        "not_normalised", "P = exp(S - m), not divided by l", "p",
        p=lambda p, _: weights_of(p.gold.scores, p.gold.scores.max(axis=-1)),
    ),
    _row(
        "lse_of_neighbour", "LSE of the previous row", "p",
        p=lambda p, _: np.where(
            np.isneginf(p.gold.scores), 0, weights_of(p.gold.scores, np.roll(p.call.lse, 1, axis=2))
        ),
    ),
    _row("mask_forgotten", "P is not masked", "p", p=_unmasked),
    _row("mask_forgotten_in_ds", "dS uses a P that is not masked", "ds", p_of_ds=_unmasked),
    _run("causal_sees_next", "mask off by one: sees the next key", "scores", lambda problem: _shifted(problem, 1)),
    _run("causal_misses_self", "mask off by one: misses its own key", "scores", lambda problem: _shifted(problem, -1)),
    _run("wrong_alignment", "mask aligned to the other corner", "scores", _other_corner),
    _run("empty_row_nan", "exp(-inf - -inf) in rows that see no key", "p", _empty_row_nan),
    _row("ds_without_p", "dS = dP - delta on visible keys", "ds", p_of_ds=lambda _, p: (p > 0) * 1.0),
    _row("p_squared", "dS = P²∘(dP - delta)", "ds", ds=lambda p, x: x * p.gold.p),
    _row(
        "dp_of_o", "dP = O·Vᵀ", "dp",
        dp=lambda p, _: p.call.wide("o") @ p.call.wide("v").swapaxes(2, 3),
    ),
    _row("dp_of_k", "dP = dO·Kᵀ", "dp", dp=lambda p, _: p.call.wide("do") @ p.call.wide("k").swapaxes(2, 3)),
    _row(
        "dp_half_d", "half of D is left out of dO·Vᵀ", "dp",
        dp=lambda p, x: x - p.call.wide("do")[..., ::2] @ p.call.wide("v")[..., ::2].swapaxes(2, 3),
    ),
    _row("dq_of_v", "dQ = scale·dS·V", "dq", dq=lambda p, _: p.gold.ds @ p.call.wide("v") * p.call.factor),
    _row(
        "dk_of_do", "dK = scale·dSᵀ·dO", "dk",
        dk=lambda p, _: p.call.per_key_head(p.gold.ds.swapaxes(2, 3) @ p.call.wide("do")) * p.call.factor,
    ),
    _row(
        "dv_not_transposed", "dV = P·dO instead of Pᵀ·dO", "dv",
        dv=lambda p, x: p.call.per_key_head(p.gold.p @ p.call.wide("do")) if _shape_square(p) else x,
    ),
    _row(
        "dk_not_transposed", "dK = scale·dS·Q instead of dSᵀ·Q", "dk",
        dk=lambda p, x: p.call.per_key_head(p.gold.ds @ p.call.wide("q")) * p.call.factor if _shape_square(p) else x,
    ),
    _row(
        "dq_transposed", "dQ = scale·dSᵀ·K", "dq",
        dq=lambda p, x: p.gold.ds.swapaxes(2, 3) @ p.call.wide("k") * p.call.factor if _shape_square(p) else x,
    ),
    _run(
        "dk_dv_swapped", "dK and dV are exchanged", "dk",
        lambda problem: finish(problem, problem.gold.dq, problem.gold.dv, problem.gold.dk),
    ),
    _row("dk_of_one_head", "dK of one query head of the group", "dk", dk=lambda p, _: _one_of_group(p, "dk")),
    _row("dv_of_one_head", "dV of one query head of the group", "dv", dv=lambda p, _: _one_of_group(p, "dv")),
    _run("gqa_interleaved", "dK and dV are added to head mod Hkv", "dk", _swapped_groups),
    _row("dk_heads_swapped", "dK's heads in reverse order", "dk", dk=lambda _, x: x[:, ::-1]),
    _row(
        "race_on_dq", "tiles of keys overwrite each other's dQ: only the last is left", "dq",
        dq=lambda p, _: _tiled(p.gold.ds, 3, lambda left: left == 0) @ p.call.wide("k") * p.call.factor,
    ),
    _row(
        "last_key_tile_dropped", "the last tile of keys is left out of dQ", "dq",
        dq=lambda p, _: _tiled(p.gold.ds, 3, lambda left: left > 0) @ p.call.wide("k") * p.call.factor,
    ),
    _row(
        "last_query_tile_dropped", "the last tile of queries is left out of dV", "dv",
        dv=lambda p, _: p.call.per_key_head(
            _tiled(p.gold.p, 2, lambda left: left > 0).swapaxes(2, 3) @ p.call.wide("do")
        ),
    ),
    _row("dq_added_twice", "dQ is added to itself: the buffer was not cleared", "dq", dq=lambda _, x: 2 * x),
    _row("dq_negated", "the sign of dQ", "dq", dq=lambda _, x: -x),
    _row("dq_tail_zero", "rows of dQ after the last full 16 are zero", "dq", dq=lambda _, x: _tail_zero(x)),
    _row("dk_tail_zero", "rows of dK after the last full 16 are zero", "dk", dk=lambda _, x: _tail_zero(x)),
    _row(
        "dv_last_column", "the last column of dV is zero", "dv",
        dv=lambda _, x: x * (np.arange(x.shape[3]) < x.shape[3] - 1),
    ),
    _row("dq_smaller", "dQ × 0.99", "dq", dq=lambda _, x: 0.99 * x),
    _row("dk_smaller", "dK × 0.99", "dk", dk=lambda _, x: 0.99 * x),
    _row("dv_smaller", "dV × 0.99", "dv", dv=lambda _, x: 0.99 * x),
    _row("dq_in_bf16", "dQ is added up in bf16", "dq", dq=lambda p, _: _accumulated(p, "bf16")),
    _row("ds_in_e4m3", "dS is rounded to e4m3", "ds", ds=lambda _, x: rounded(x, "e4m3")),
    _row(
        "p_in_bf16", "P is rounded to bf16 whatever the type", "p", p=lambda _, x: rounded(x, "bf16"),
        excluded={"bf16": "bf16 is the type: tensor-core kernels do the same"},
    ),
    _row(
        "dv_truncated", "dV is truncated toward zero", "dv", dv=lambda p, x: cut(x, p.workload.dtype),
        excluded=NOT_CONVERTED,
    ),
)  # fmt: skip


def _short(problem: BackwardProblem, *, p: bool, ds: bool) -> Outputs:
    dtype = problem.workload.dtype

    def to_type(_: BackwardProblem, x: Array) -> Array:
        return rounded(x, dtype)

    # P is rounded only where dV is computed: dS has the P of float32.
    dv = {"dv": lambda q, _: q.call.per_key_head(rounded(q.gold.p, dtype).swapaxes(2, 3) @ q.call.wide("do"))}
    return pieces(problem, **(dv if p else {}), **({"ds": to_type} if ds else {}))


def _in_float32(problem: BackwardProblem) -> Outputs:
    """Every stage in float32, keys and queries in reverse order."""
    call, f32 = problem.call, np.float32
    q, k, v, o, do = (call.wide(name).astype(f32) for name in ("q", "k", "v", "o", "do"))
    raw = q @ k.swapaxes(2, 3) * f32(call.factor)
    p = weights_of(np.where(call.mask, call.logits.of(raw), f32(-np.inf)), call.lse).astype(f32)
    ds = p * (do @ v.swapaxes(2, 3) - (do * o).sum(axis=-1, keepdims=True)) * call.slope(raw).astype(f32)
    ds, p = ds[..., ::-1, ::-1], p[..., ::-1, ::-1]
    dq = (ds @ k[:, :, ::-1] * f32(call.factor))[:, :, ::-1]
    dk = call.per_key_head((ds.swapaxes(2, 3) @ q[:, :, ::-1] * f32(call.factor))[:, :, ::-1])
    return finish(problem, dq, dk, call.per_key_head((p.swapaxes(2, 3) @ do[:, :, ::-1])[:, :, ::-1]))


RIGHT_BACKWARD: Mapping[str, Callable[[BackwardProblem], Outputs]] = {
    "float64": pieces,
    "float32": _in_float32,
    "short_p": lambda problem: _short(problem, p=True, ds=False),
    "short_p_ds": lambda problem: _short(problem, p=True, ds=True),
}
"""Right implementations: a gate that rejects one of them is wrong."""
