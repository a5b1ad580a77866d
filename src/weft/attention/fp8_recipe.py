"""All-FP8 attention as a recipe that kernels follow bit for bit: how values are quantised, rounded and added.

`RecipeRun` is the recipe in float32, with one method for each part. Only two things are not specified: the last bits
of the hardware's exponential, and the order of float32 sums of l and of q·mean. Where such a bit decides how a weight
is rounded to E4M3, `Recipe.allowance` has that weight's step; everywhere else a comparison can be tight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .dtypes import Array, numpy_dtype, rounded
from .e4m3 import E4M3PerBlock, E4M3PerChannel, SmoothedE4M3PerBlock, SmoothedKeys, e4m3_values, lse_shift
from .errors import ContractError
from .fp8_tensor_core import FRACTION_BITS, STEP, STEPS, fp8_matmul
from .quantise import Quantised
from .reference import default_scale, shape_of
from .shapes import Shape

P_SCALE = np.float32(2.0**8)
FLUSH_KEYS = 64
LOG2_E, LN_2 = np.float32(1.44269504), np.float32(0.693147181)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The choices of a kernel: its blocks, whether it flushes the tensor core's sum, whether it smooths K."""

    block_m: int = 64
    """Queries that share a step."""
    block_n: int = 64
    """Keys that share a step, and keys of a tile."""
    flush: bool = True
    """Whether the tensor core's sum is added to an fp32 sum every 64 keys, or continues over all keys."""
    smooth: bool = True
    products: int = STEP
    """The products that the tensor core adds in a fused step: 16 in Ada's mma, 32 in Hopper's wgmma."""
    out_dtype: str = "f16"

    def __post_init__(self) -> None:
        numpy_dtype(self.out_dtype)
        if self.block_m < 1 or self.block_n < 1 or self.block_n % FLUSH_KEYS:
            raise ContractError(f"block_n is a multiple of {FLUSH_KEYS} keys, not {self.block_n}; block_m at least 1")
        if self.products not in STEPS:
            raise ContractError(f"a tensor core adds {STEPS[0]} or {STEPS[1]} products at once, not {self.products}")

    @property
    def lost_per_step(self) -> float:
        """The largest loss by truncation in a step, relative to its largest term: one unit of each term."""
        return (self.products + 1) * 2.0**-FRACTION_BITS

    @property
    def steps_per_flush(self) -> int:
        """Return the number of steps between two additions in fp32."""
        return FLUSH_KEYS // self.products


@dataclass(frozen=True)
class Followed:
    """The result of a recipe."""

    o: Array
    """(b, hq, sq, d) in the output type."""
    unrounded: Array
    """The same before it is rounded to that type."""
    lse: Array
    """(b, hq, sq), float32, of the unsmoothed scores."""
    allowance: Array
    """(b, hq, sq): how far a right kernel may be from o, as a share of max|V|."""
    dequantised: tuple[Array, Array, Array]
    """q, k and v decoded from their codes, in float32."""


@dataclass(frozen=True, eq=False)
class RecipeTile:
    """The state after a tile of keys; (b, hq, sq) unless stated."""

    keys: slice
    scores: Array
    """(b, hq, sq, n) as exponents of 2, of the smoothed keys."""
    masked: Array
    m: Array
    p: Array
    """(b, hq, sq, n): 2⁸·P as the tensor core multiplies it."""
    l: Array
    u: Array
    """(b, hq, sq, d): Σ 2⁸·P · V's codes."""
    open_steps: Array
    """(b, hq, sq, n): how far 2⁸·P may be from p because the exponential's last bits decide."""
    loose: Array
    """How far U may be from u for that reason, as a share of the largest code of V."""


@dataclass(frozen=True, eq=False)
class RecipeRun:
    """One call. A wrong implementation changes one of these methods."""

    recipe: Recipe
    q: Array
    k: Array
    v: Array
    mask: Array
    """(sq, skv)."""

    @cached_property
    def shape(self) -> Shape:
        return shape_of(self.q, self.k, self.v)

    @property
    def scale(self) -> float:
        return default_scale(self.shape.d)

    def per_query_head(self, x: Array) -> Array:
        """Return an array of K or V with one head per query head."""
        return np.repeat(x, self.shape.group, axis=1)

    # Quantisation.

    @cached_property
    def q_coded(self) -> Quantised:
        return E4M3PerBlock(self.recipe.block_m).encode(self.q)

    @cached_property
    def k_coded(self) -> SmoothedKeys:
        if self.recipe.smooth:
            return SmoothedE4M3PerBlock(self.recipe.block_n).encode(self.k)
        coded = E4M3PerBlock(self.recipe.block_n).encode(self.k)
        return SmoothedKeys(*coded, np.zeros(self.k[:, :, 0].shape, np.float32))

    @cached_property
    def v_coded(self) -> Quantised:
        return E4M3PerChannel().encode(self.v)

    def dequantised(self) -> tuple[Array, Array, Array]:
        return (
            E4M3PerBlock(self.recipe.block_m).decode(*self.q_coded),
            SmoothedE4M3PerBlock(self.recipe.block_n).decode(*self.k_coded),
            E4M3PerChannel().decode(*self.v_coded),
        )

    # A tile of keys.

    def tiles(self) -> list[slice]:
        step = self.recipe.block_n
        return [slice(first, first + step) for first in range(0, self.shape.skv, step)]

    def scores(self, keys: slice) -> Array:
        """Return q·k as exponents of 2, of the smoothed keys, not yet masked: (b, hq, sq, n)."""
        k = self.per_query_head(e4m3_values(self.k_coded.codes[:, :, keys]))
        k_step = self.per_query_head(self.k_coded.scale[:, :, keys.start // self.recipe.block_n])
        q_step = E4M3PerBlock(self.recipe.block_m).spread(self.q_coded.scale, self.q.shape)
        to_base = np.float32(self.scale) * LOG2_E
        factor = (q_step * k_step[:, :, None, None]) * to_base
        return self.matmul(e4m3_values(self.q_coded.codes), k.swapaxes(2, 3)) * factor

    def matmul(self, a: Array, b: Array, c: Array | None = None) -> Array:
        """Return the tensor core's product of (b, h, …) operands."""
        flat = [x.reshape(-1, *x.shape[2:]) for x in (a, b)]
        given = None if c is None else c.reshape(-1, *c.shape[2:])
        return fp8_matmul(flat[0], flat[1], given, step=self.recipe.products).reshape(*a.shape[:3], b.shape[3])

    def exp2(self, x: Array) -> Array:
        """Return ex2.approx.ftz of x."""
        y = np.exp2(x.astype(np.float64))
        return np.where(y < 2.0**-126, 0.0, y).astype(np.float32)

    def p_values(self, p: Array) -> Array:
        """2⁸·P as the tensor core multiplies it."""
        return rounded(p * P_SCALE, "e4m3")

    def accumulate(self, u: Array, p: Array, v: Array) -> Array:
        """Return U + P·V, of a U already rescaled."""
        if not self.recipe.flush:
            return self.matmul(p, v, u)
        for first in range(0, p.shape[3], FLUSH_KEYS):
            keys = slice(first, first + FLUSH_KEYS)
            u = u + self.matmul(p[..., keys], v[:, :, keys])
        return u

    def rescaled(self, u: Array, rescale: Array) -> Array:
        return u * rescale[..., None]

    def normalised(self, u: Array, l: Array) -> Array:
        """Return U / l in V's units."""
        divisor = np.where(l == 0, np.float32(1), l) * P_SCALE
        inverse = np.where(l == 0, np.float32(0), np.float32(1) / divisor)
        return u * inverse[..., None] * self.per_query_head(self.v_coded.scale)[:, :, None]

    def log_sum(self, m: Array, l: Array) -> Array:
        """Return the LSE of the scores before smoothing."""
        empty = l == 0
        lse = (np.where(empty, np.float32(0), m) + np.log2(np.where(empty, np.float32(1), l))) * LN_2
        return np.where(empty, -np.inf, lse + lse_shift(self.q, self.k_coded.mean, self.scale)).astype(np.float32)

    def passes(self) -> Iterator[RecipeTile]:
        """Yield tile after tile."""
        rows, v = self.shape.lse, self.per_query_head(e4m3_values(self.v_coded.codes))
        u, m, l = np.zeros(self.shape.q, np.float32), np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
        loose = np.zeros(rows)
        for keys in self.tiles():
            scores = self.scores(keys)
            s = np.where(self.mask[:, keys], scores, np.float32(-np.inf))
            m_old, m = m, np.maximum(m, s.max(axis=-1))
            # A row without a visible key so far keeps m = -inf: subtracting 0 instead gives P = 0 and U = 0.
            shift = np.where(np.isneginf(m), np.float32(0), m)
            p, rescale = self.exp2(s - shift[..., None]), self.exp2(m_old - shift)
            l = l * rescale + p.sum(axis=-1)
            codes = self.p_values(p)
            u = self.accumulate(self.rescaled(u, rescale), codes, v[:, :, keys])
            open_steps = _open_steps(p, s, shift)
            loose = loose * rescale + _borderline(open_steps, p, self.recipe)
            yield RecipeTile(keys, scores, s, m, codes, l, u, open_steps, loose)

    def follow(self) -> Followed:
        """Return the result of all tiles."""
        for tile in self.passes():
            last = tile
        wide = self.normalised(last.u, last.l)
        with np.errstate(over="ignore"):
            o = wide.astype(numpy_dtype(self.recipe.out_dtype))
        allowance = last.loose / np.where(last.l == 0, 1, last.l * P_SCALE)
        return Followed(o, wide, self.log_sum(last.m, last.l), allowance, self.dequantised())


def _open_steps(p: Array, s: Array, shift: Array) -> Array:
    """Return the steps (in units of 2⁸·P) of weights so close to the middle of two codes that the exponential's last
    bits decide; 0 elsewhere. ex2.approx is good to 2 ulp; s - m is exact or rounded by 2^-24 of itself, and s itself
    may differ by two roundings if a GPU orders factors differently."""
    argument = np.abs(np.where(np.isneginf(s), 0, s)) + np.abs(shift)[..., None]
    window = (2.0**-21 + argument * 2.0**-22).astype(np.float32)
    scaled = p * P_SCALE
    return rounded(scaled * (1 + window), "e4m3") - rounded(scaled * (1 - window), "e4m3")


def _borderline(open_steps: Array, p: Array, recipe: Recipe) -> Array:
    """Return the sum of a row's open steps, plus the other truncations that a changed weight may cause in its tile."""
    steps = open_steps.sum(axis=-1, dtype=np.float64)
    tile_steps = p.shape[3] // recipe.products + 1
    return np.asarray(steps + (steps > 0) * tile_steps * recipe.lost_per_step * (p * P_SCALE).max(axis=-1))
