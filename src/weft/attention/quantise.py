"""8-bit quantisers with one scale per head. Encoding and decoding are in one object, so they stay consistent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import ml_dtypes
import numpy as np

from .dtypes import Array
from .errors import ContractError

E4M3_MAX = 448.0
ZERO_BELOW = 1e-6
"""A head whose largest magnitude is below this counts as zero: scale 1, and every code decodes to exactly 0."""


class Quantised(NamedTuple):
    """Codes (b, h, s, d) as uint8 and scales (b, h) as float32."""

    codes: Array
    scale: Array


class Quantiser(Protocol):
    """Encodes and decodes per head, and bounds the distance of a decoded value from its original."""

    @property
    def name(self) -> str: ...

    def encode(self, x: Array) -> Quantised: ...

    def decode(self, codes: Array, scale: Array) -> Array: ...

    def bound(self, x: Array, scale: Array) -> Array: ...


def head_scale(x: Array) -> Array:
    """Return absmax / 448 of each head (b, h), 1 for a head of zeros; the float32 that a kernel receives."""
    if x.ndim != 4:
        raise ContractError(f"a tensor to quantise is (b, h, s, d), not {x.shape}")
    absmax = np.abs(x.astype(np.float64)).max(axis=(2, 3))
    if not np.isfinite(absmax).all():
        raise ContractError("cannot quantise NaN or infinity: no scale represents them")
    return np.where(absmax < ZERO_BELOW, 1.0, absmax / E4M3_MAX).astype(np.float32)


def encode_shared(quantiser: Quantiser, x: Array) -> Quantised:
    """Return codes (b, h, s, d) with one scale per head for all batch entries: (h,)."""
    b, h, s, d = x.shape
    coded = quantiser.encode(x.swapaxes(0, 1).reshape(1, h, b * s, d))
    return Quantised(np.ascontiguousarray(coded.codes.reshape(h, b, s, d).swapaxes(0, 1)), coded.scale[0])


@dataclass(frozen=True)
class SimFp8:
    """Linear 8 bit: code 128 is zero, 127 steps reach the head's largest magnitude."""

    name: str = "sim_fp8"

    def encode(self, x: Array) -> Quantised:
        """Return round(x / (448·scale) · 127 + 128), clipped to 0..255."""
        scale = head_scale(x)
        steps = x.astype(np.float64) / self.lsb(scale)[..., None, None]
        return Quantised(np.clip(np.rint(steps + 128), 0, 255).astype(np.uint8), scale)

    def decode(self, codes: Array, scale: Array) -> Array:
        """Return (u - 128) / 127 · 448 · scale, rounded once to float32."""
        return ((codes.astype(np.float64) - 128) * self.lsb(scale)[..., None, None]).astype(np.float32)

    def lsb(self, scale: Array) -> Array:
        """Return the distance of adjacent codes per head, in float64."""
        return np.asarray(E4M3_MAX * scale.astype(np.float64) / 127)

    def bound(self, x: Array, scale: Array) -> Array:
        """Return half an LSB, plus the float32 rounding of scale and decoded value."""
        half = self.lsb(scale)[..., None, None] / 2
        return np.broadcast_to(half * (1 + 254 * 2.0**-23), x.shape)

    def bias(self, x: Array, codes: Array, scale: Array) -> Array:
        """Return the mean signed error per head in LSB: about 0 if rounding is right, ±0.5 if off by half a step."""
        error = self.decode(codes, scale).astype(np.float64) - x.astype(np.float64)
        return np.asarray(error.mean(axis=(2, 3)) / self.lsb(scale))


@dataclass(frozen=True)
class E4M3PerHead:
    """Real E4M3: the head's largest magnitude becomes 448, codes are the bits of `float8_e4m3fn`."""

    name: str = "e4m3"

    def encode(self, x: Array) -> Quantised:
        """Return x / scale rounded to nearest even, saturating."""
        scale = head_scale(x)
        steps = np.clip(x.astype(np.float64) / scale[..., None, None], -E4M3_MAX, E4M3_MAX)
        codes = steps.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        zero_head = np.abs(x.astype(np.float64)).max(axis=(2, 3), keepdims=True) < ZERO_BELOW
        return Quantised(np.where(zero_head, np.uint8(0), codes), scale)

    def decode(self, codes: Array, scale: Array) -> Array:
        """Return the code's value times scale in float32; codes 0x7F and 0xFF are NaN."""
        values = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        return np.asarray(values * scale[..., None, None].astype(np.float32))

    def bound(self, x: Array, scale: Array) -> Array:
        """Return half a step of three fraction bits, or of the denormals below 2^-6; both with float32 rounding."""
        relative = np.abs(x.astype(np.float64)) * 2.0**-4
        return np.maximum(relative, scale[..., None, None].astype(np.float64) * 2.0**-10) * (1 + 2.0**-18)

    def bias(self, x: Array, codes: Array, scale: Array) -> Array:
        """Return the mean signed error per head, as a share of the head's largest magnitude."""
        error = self.decode(codes, scale).astype(np.float64) - x.astype(np.float64)
        return np.asarray(error.mean(axis=(2, 3)) / (E4M3_MAX * scale.astype(np.float64)))


QUANTISERS: Mapping[str, Quantiser] = {each.name: each for each in (SimFp8(), E4M3PerHead())}
"""The quantisers by name."""
