"""The quantisers of FP8 attention: E4M3 with a step per block of rows or per channel, and K without its mean.

They compute in float32 as kernels do, so that a kernel's codes can be compared bit for bit.
"""

from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np

from .dtypes import Array, rounded
from .errors import ContractError
from .quantise import E4M3_MAX, Quantised

ZERO_BELOW = np.float32(E4M3_MAX * 2.0**-126)
"""Values up to this magnitude count as zero: their step would not be a normal float32."""
MEAN_CHUNK = 128
"""The number of keys in each partial sum of K's mean."""


def step_of(absmax: Array) -> Array:
    """Return absmax / 448, the value of code 1.0; 1 where everything counts as zero."""
    if not np.isfinite(absmax).all():
        raise ContractError("cannot quantise NaN or infinity: no scale represents them")
    return np.where(absmax < ZERO_BELOW, np.float32(1), absmax / np.float32(E4M3_MAX)).astype(np.float32)


def e4m3_codes(x: Array, step: Array) -> Array:
    """Return x · (1 / step) in float32, rounded to nearest even and saturated at ±448, as uint8."""
    scaled = x.astype(np.float32) * (np.float32(1) / step)
    near = np.clip(scaled, np.float32(-E4M3_MAX), np.float32(E4M3_MAX))
    return np.asarray(near.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def e4m3_values(codes: Array) -> Array:
    """Return the values of codes, without their step: float32."""
    return np.asarray(codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32))


def e4m3_bound(x: Array, step: Array) -> Array:
    """Return how far a decoded value may be from x: half a step of three fraction bits or of the denormals, but never
    more than x itself, for values that become zero; plus the float32 roundings."""
    size = np.abs(x.astype(np.float64))
    half = np.maximum(size * 2.0**-4, step.astype(np.float64) * 2.0**-10)
    return np.minimum(size, half) * (1 + 2.0**-18)


@dataclass(frozen=True)
class E4M3PerBlock:
    """A step for every `rows` rows of a head, the last of them possibly fewer: scale is (b, h, blocks)."""

    rows: int
    name: str = "e4m3_per_block"

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ContractError(f"a block has at least one row, not {self.rows}")

    def encode(self, x: Array) -> Quantised:
        wide = _four_axes(x)
        starts = np.arange(0, wide.shape[2], self.rows)
        scale = step_of(np.maximum.reduceat(np.abs(wide).max(axis=3), starts, axis=2))
        return Quantised(e4m3_codes(wide, self.spread(scale, wide.shape)), scale)

    def decode(self, codes: Array, scale: Array) -> Array:
        return np.asarray(e4m3_values(codes) * self.spread(scale, codes.shape))

    def bound(self, x: Array, scale: Array) -> Array:
        return e4m3_bound(x, self.spread(scale, x.shape))

    def spread(self, scale: Array, shape: tuple[int, ...]) -> Array:
        """Return the step of every row, (b, h, s, 1)."""
        return np.repeat(scale, self.rows, axis=2)[:, :, : shape[2], None]


@dataclass(frozen=True)
class E4M3PerChannel:
    """A step for every channel of a head: scale is (b, h, d)."""

    name: str = "e4m3_per_channel"

    def encode(self, x: Array) -> Quantised:
        wide = _four_axes(x)
        scale = step_of(np.abs(wide).max(axis=2))
        return Quantised(e4m3_codes(wide, scale[:, :, None]), scale)

    def decode(self, codes: Array, scale: Array) -> Array:
        return np.asarray(e4m3_values(codes) * scale[:, :, None])

    def bound(self, x: Array, scale: Array) -> Array:
        return e4m3_bound(x, scale[:, :, None])


class SmoothedKeys(NamedTuple):
    """The codes of K without its mean (b, h, d), and what is needed to decode them."""

    codes: Array
    scale: Array
    mean: Array


@dataclass(frozen=True)
class SmoothedE4M3PerBlock:
    """K's mean over all keys is subtracted first, so that a channel's offset does not use up the block's range.

    q·k loses the same for every key of a row: the softmax is not changed, and `lse_shift` adds it back to the LSE.
    """

    rows: int
    name: str = "smoothed_e4m3_per_block"

    @property
    def blocks(self) -> E4M3PerBlock:
        return E4M3PerBlock(self.rows)

    def encode(self, k: Array) -> SmoothedKeys:
        mean = key_mean(k)
        return SmoothedKeys(*self.blocks.encode(k.astype(np.float32) - mean[:, :, None]), mean)

    def decode(self, codes: Array, scale: Array, mean: Array) -> Array:
        return self.blocks.decode(codes, scale) + mean[:, :, None]

    def bound(self, k: Array, scale: Array, mean: Array) -> Array:
        """Return the bound of the remainder, plus the roundings of subtracting and adding the mean."""
        wide, centre = k.astype(np.float64), mean[:, :, None].astype(np.float64)
        return self.blocks.bound(wide - centre, scale) + (np.abs(wide) + np.abs(centre)) * 2.0**-23


def key_mean(k: Array) -> Array:
    """Return K's mean over keys (b, h, d), rounded to bf16. Any vector may be subtracted, and a bf16 one hardly depends
    on the order of the sum: here chunk by chunk, each key after key."""
    wide = _four_axes(k)
    b, h, keys, d = wide.shape
    padded = np.zeros((b, h, -(-keys // MEAN_CHUNK) * MEAN_CHUNK, d), np.float32)
    padded[:, :, :keys] = wide
    chunks = padded.reshape(b, h, -1, MEAN_CHUNK, d)
    totals = np.zeros_like(chunks[:, :, :, 0])
    for key in range(min(keys, MEAN_CHUNK)):  # of all chunks at once; zeros after the last key change no sum
        totals = totals + chunks[:, :, :, key]
    whole = np.zeros_like(totals[:, :, 0])
    for chunk in range(totals.shape[2]):
        whole = whole + totals[:, :, chunk]
    return rounded(whole / np.float32(keys), "bf16")


def lse_shift(q: Array, mean: Array, scale: float) -> Array:
    """Return q·mean·scale (b, hq, sq), which smoothing subtracts from every score of a row. Groups share means."""
    per_head = np.repeat(mean.astype(np.float64), q.shape[1] // mean.shape[1], axis=1)
    return np.asarray((q.astype(np.float64) @ per_head[..., None])[..., 0] * scale)


def _four_axes(x: Array) -> Array:
    if x.ndim != 4:
        raise ContractError(f"a tensor to quantise is (b, h, s, d), not {x.shape}")
    return x.astype(np.float32)
