"""Emulates a kernel's declared algorithm: online softmax over KV tiles in float32, rounded where the kernel declares.

The remaining differences from the kernel are the order of summation inside a tile and the hardware's exponential;
`Emulated.allowance` bounds both, so that a comparison can be tight everywhere else.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from .dtypes import Array, epsilon, numpy_dtype, rounded
from .errors import ContractError
from .logits import PLAIN_LOGITS, Logits
from .merge import Partial, merge, sink_partials
from .reference import Causal, default_scale, mask_for, shape_of
from .shapes import Shape
from .stages import Tile


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What a kernel declares about its arithmetic."""

    block_m: int
    """Query rows of a CTA. It decides only which tiles a causal kernel skips."""
    block_n: int
    """Keys of a tile."""
    splits: int = 1
    """The number of splits; each gets as many full tiles as the first, and the last ones may be empty."""
    operand_dtype: str = "f32"
    """The type that Q, K and V are rounded to before they are multiplied."""
    s_dtype: str = "f32"
    """The type of scaled scores."""
    p_dtype: str = "f32"
    """The type of P in P·V; e4m3 saturates."""
    p_scale: float = 1.0
    """A power of two: P is multiplied by it before it is rounded, and divided by it afterwards."""
    p_open: bool = False
    """Whether it is unknown where P is rounded, or if at all: for kernels that declare nothing about their tiles."""
    l_of_rounded_p: bool = False
    """Whether l sums P after its rounding rather than before."""
    out_dtype: str = "f32"
    acc: Literal["f32", "f16", "bf16"] = "f32"
    """The type in which Q·Kᵀ and U are accumulated, rounded once per tile."""
    scale_in: Literal["scores", "q"] = "scores"
    """Where the softmax scale is applied."""
    exp_base: float = math.e
    """e, or 2 for kernels that fold log2(e) into the scale."""
    sinks_first: bool = False
    """Whether m and l start with the sink; otherwise it is merged after all keys."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name.endswith("_dtype"):
                numpy_dtype(getattr(self, field.name))
        if min(self.block_m, self.block_n, self.splits) < 1:
            raise ContractError("block_m, block_n and splits are at least 1")
        if self.acc not in ("f32", "f16", "bf16"):
            raise ContractError(f"acc is f32, f16 or bf16, not {self.acc!r}")
        if self.scale_in not in ("scores", "q"):
            raise ContractError(f"scale_in is 'scores' or 'q', not {self.scale_in!r}")
        if self.exp_base not in (2, math.e):
            raise ContractError(f"exp_base is e or 2, not {self.exp_base!r}")
        if self.p_scale <= 0 or math.frexp(self.p_scale)[0] != 0.5:
            raise ContractError(f"p_scale is a power of two, not {self.p_scale!r}")


@dataclass(frozen=True)
class Emulated:
    """The result, and on request the stages behind it."""

    o: Array
    """(b, hq, sq, d) in the algorithm's output type."""
    unrounded: Array
    """The same before it is rounded to that type."""
    lse: Array
    """(b, hq, sq), float32, natural logarithm."""
    allowance: Array
    """(b, hq, sq): how far a right kernel may be from o, as a share of max|V|; how far from lse, absolutely."""
    q: Array
    """(b, hq, sq, d) as multiplied: dequantised, scaled if the scale is applied to Q, rounded."""
    tiles: tuple[Tile, ...] = ()
    """In the order of keys."""
    partials: tuple[Partial, ...] = ()
    """The input of the merge from each split."""


def emulate(
    algorithm: Algorithm,
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    causal: Causal = None,
    mask: Array | None = None,
    logits: Logits = PLAIN_LOGITS,
    keep_stages: bool = False,
) -> Emulated:
    """Run the algorithm on (dequantised) inputs of the contract's shapes. `keep_stages` fills `tiles`."""
    shape = shape_of(q, k, v)
    factor = default_scale(shape.d) if scale is None else scale
    to_base = 1.0 if algorithm.exp_base == math.e else math.log2(math.e)
    in_q = algorithm.scale_in == "q"
    q32, k32, v32 = (x.astype(np.float32) for x in (q, k, v))
    if in_q:
        q32 = q32 * np.float32(factor * to_base)
    open_steps = [_open_step(x, algorithm.operand_dtype) for x in (q32, k32, v32)]
    q32, k32, v32 = (rounded(x, algorithm.operand_dtype) for x in (q32, k32, v32))
    score_factor = np.float32(1.0 if in_q else factor * to_base)
    call = _Call(algorithm, shape, mask_for(shape, causal, mask), score_factor, q32, logits)

    tile_count = -(-shape.skv // algorithm.block_n)
    tiles_per_split = -(-tile_count // algorithm.splits)
    kept: list[Tile] = []
    partials: list[Partial] = []
    sinks = sink_partials(logits.sinks, call.start(), base=algorithm.exp_base)
    for split in range(algorithm.splits):
        last = sinks[0] if sinks and call.starts_with_sinks(split) else call.start()
        for tile in call.run(k32, v32, last, split, range(tile_count)[split * tiles_per_split :][:tiles_per_split]):
            last = Partial(tile.u, tile.m, tile.l)
            if keep_stages:
                kept.append(tile)
        partials.append(last)
    partials.extend(() if call.starts_with_sinks(0) else sinks)
    merged = merge(partials, base=algorithm.exp_base)
    with np.errstate(over="ignore"):
        o = merged.o.astype(numpy_dtype(algorithm.out_dtype))
    m = np.max([partial.m for partial in partials], axis=0)
    allowance = call.allowance(k32, m, merged.lse) + call.open_operands(k32, v32, *open_steps)
    return Emulated(o, merged.o, merged.lse, allowance, q32, tuple(kept), tuple(partials))


@dataclass(frozen=True)
class _Call:
    """One emulation: everything that stays the same from tile to tile."""

    algorithm: Algorithm
    shape: Shape
    mask: Array
    score_factor: np.float32
    q: Array
    logits: Logits

    def start(self) -> Partial:
        """Return U = 0, m = -inf, l = 0."""
        rows = self.shape.lse
        return Partial(
            np.zeros(self.shape.q, np.float32), np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
        )

    def starts_with_sinks(self, split: int) -> bool:
        """Whether a split starts with the sinks: they count once."""
        return self.algorithm.sinks_first and split == 0

    def run(self, k: Array, v: Array, start: Partial, split: int, tiles: range) -> Iterator[Tile]:
        """Yield the tiles of one split, in order."""
        algorithm, step = self.algorithm, self.algorithm.block_n
        exp = np.exp2 if algorithm.exp_base == 2 else np.exp
        u, m, l = start
        for index in tiles:
            k_tile, v_tile = (x[:, :, index * step : (index + 1) * step] for x in (k, v))
            keys = slice(index * step, (index + 1) * step)
            mask = self.mask[..., keys]
            products = rounded(self._times(self.q, k_tile.swapaxes(2, 3)), algorithm.acc)
            scores = rounded(self._logits(products * self.score_factor, keys), algorithm.s_dtype)
            masked = np.where(mask, scores, np.float32(-np.inf))
            m_old, m = m, np.maximum(m, masked.max(axis=-1))
            # A row without a visible key so far keeps m = -inf: subtracting 0 instead gives P = 0 and U = 0.
            shift = np.where(np.isneginf(m), np.float32(0), m)
            exact_p, rescale = exp(masked - shift[..., None]), exp(m_old - shift)
            scale = np.float32(algorithm.p_scale)
            p = rounded(exact_p * scale, algorithm.p_dtype) / scale
            l = l * rescale + (p if algorithm.l_of_rounded_p else exact_p).sum(axis=-1)
            u = rounded(u * rescale[..., None] + self._times(p, v_tile), algorithm.acc)
            yield Tile(index, split, index * step, k_tile, v_tile, scores, masked, m, p, l, u, self._visited(mask))

    def _logits(self, scores: Array, keys: slice) -> Array:
        """Return the logits of scaled scores; both are exponents of the algorithm's base."""
        if self.logits.plain:
            return scores
        to_natural = np.float32(math.log(self.algorithm.exp_base))
        return np.asarray(self.logits.of(scores * to_natural, keys) / to_natural)

    def _times(self, rows: Array, per_kv_head: Array) -> Array:
        """Return the matrix product per head; each KV head is shared by its group of query heads."""
        b, hq, sq, inner = rows.shape
        grouped = rows.reshape(b, self.shape.hkv, self.shape.group, sq, inner)
        return np.asarray((grouped @ per_kv_head[:, :, None]).reshape(b, hq, sq, -1))

    def _visited(self, mask: Array) -> Array:
        starts = np.arange(0, self.shape.sq, self.algorithm.block_m)
        seen = mask.any(axis=-1).reshape(-1, self.shape.sq).any(axis=0)
        block_sees = np.logical_or.reduceat(seen, starts)
        return np.repeat(block_sees, self.algorithm.block_m)[: self.shape.sq]

    def allowance(self, k: Array, m: Array, lse: Array) -> Array:
        """Return how far rounding in another order may move a row, as a share of max|V|.

        A score is off by about sqrt(d) roundings of a term no larger than |q|·|k|, and P by the same share. Where S, P
        or U is kept in a short type, a value near the middle of two may round to either: one step of the largest
        weight, exp(m - lse). A step of S is largest where |S| is; since weights fall off as exp(S - m), max(|m|, 1)
        bounds |S| times its weight. Where P's rounding is unknown, all weights differ by up to half a step at random:
        4.5 standard deviations of the sum, eps/sqrt(12)·sqrt(Σ w²), and Σ w² is at most the largest weight.
        Sums over keys in float32 round once per key, by at most 2^-24 of the partial sum, and where all terms are equal
        that is no random walk: roundings may share a sign, and partial sums are half of the total on average.
        """
        algorithm = self.algorithm
        to_natural = math.log(algorithm.exp_base)
        norm_q, norm_k = (np.linalg.norm(x.astype(np.float64), axis=-1) for x in (self.q, k))
        longest_k = np.repeat(norm_k.max(axis=-1), self.shape.group, axis=1)[..., None]
        score_error = norm_q * longest_k * float(self.score_factor) * to_natural * math.sqrt(self.shape.d)
        m_natural = np.where(np.isneginf(m), 0.0, m * to_natural)
        top_weight = np.exp(m_natural - np.where(np.isneginf(m), 0.0, lse))
        step_s, step_p, step_u = map(_step, (algorithm.s_dtype, algorithm.p_dtype, algorithm.acc))
        rounded_p = 4.5 / math.sqrt(12) * np.sqrt(top_weight) if algorithm.p_open else top_weight
        steps = top_weight * step_s * np.maximum(np.abs(m_natural), 1.0) + rounded_p * step_p + step_u
        sums = self.mask.sum(axis=-1) * 2.0**-25
        return np.asarray(score_error * epsilon(algorithm.acc) + steps + sums + self._spread(m_natural))

    def _spread(self, m: Array) -> Array:
        """Return how far a cap or bias lets right kernels differ: logits below the maximum weigh less than they err."""
        short = self.algorithm.out_dtype != "f32"
        return np.zeros(self.shape.lse) if self.logits.plain else self.logits.spread(m, short=short)

    def open_operands(self, k: Array, v: Array, q_step: Array, k_step: Array, v_step: Array) -> Array:
        """Return how far operands that may round to either of two values move a row: scores, and with them P; and V."""
        moved = np.zeros(self.shape.lse)
        if q_step.any() or k_step.any():
            scores = self._times(np.abs(self.q), k_step.swapaxes(2, 3)) + self._times(q_step, np.abs(k).swapaxes(2, 3))
            seen = np.where(self.mask, scores, 0.0).max(axis=-1, initial=0.0)
            moved = moved + 2 * seen * float(self.score_factor) * math.log(self.algorithm.exp_base)
        if v_step.any():
            largest = np.abs(v).max(axis=2)
            share = (v_step.max(axis=2) / np.where(largest == 0, 1, largest)).max(axis=2)
            moved = moved + np.repeat(share, self.shape.group, axis=1)[..., None]
        return np.asarray(moved)


DECODED_WITHIN = 2.0**-22
"""A few float32 roundings: the kernel chooses the order in which a code is multiplied out."""


def _open_step(x: Array, dtype: str) -> Array:
    """Return the distance of the two values of a short type that x may round to, where x is between them; else 0."""
    if dtype == "f32":
        return np.zeros_like(x)
    low, high = (rounded(x * np.float32(1 + sign * DECODED_WITHIN), dtype) for sign in (-1, 1))
    return np.where(np.isfinite(high) & np.isfinite(low), np.abs(high - low), np.float32(0))


def _step(dtype: str) -> float:
    """Return a short type's relative step; float32's is counted per key."""
    return 0.0 if dtype == "f32" else epsilon(dtype)
