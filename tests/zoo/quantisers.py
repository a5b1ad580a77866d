"""Realistic quantisers, each with one mistake. They decode as `SimFp8` does."""

from dataclasses import dataclass

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.quantise import E4M3_MAX, Quantised, SimFp8, head_scale


@dataclass(frozen=True)
class ZeroScale(SimFp8):
    """The scale is absmax / 448 with no exception, so a head of zeros has scale 0 and is divided by it."""

    name: str = "zero_scale"

    def encode(self, x: Array) -> Quantised:
        scale = (np.abs(x.astype(np.float64)).max(axis=(2, 3)) / E4M3_MAX).astype(np.float32)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = x / (E4M3_MAX * scale[..., None, None]) * 127 + 128
            return Quantised(np.rint(steps).astype(np.uint8), scale)


@dataclass(frozen=True)
class HalfStep(SimFp8):
    """Encodes [-1, 1] as (x + 1) · 127.5, which puts zero at 127.5; the decoder's zero is 128."""

    name: str = "half_step"

    def encode(self, x: Array) -> Quantised:
        scale = head_scale(x)
        share = x.astype(np.float64) / (E4M3_MAX * scale[..., None, None])
        return Quantised(np.clip(np.rint((share + 1) * 127.5), 0, 255).astype(np.uint8), scale)


@dataclass(frozen=True)
class Truncating(SimFp8):
    """Converts to an integer without rounding first: half a step too low on average."""

    name: str = "truncating"

    def encode(self, x: Array) -> Quantised:
        scale = head_scale(x)
        share = x.astype(np.float64) / (E4M3_MAX * scale[..., None, None])
        return Quantised(np.clip(share * 127 + 128, 0, 255).astype(np.uint8), scale)
