"""What each stage should hold, keyed and shaped as taps are."""

import math
from collections.abc import Mapping

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.reference import Causal, default_scale
from weft.attention.stages import PER_TILE

from .taps import Key


def expected(
    algorithm: Algorithm, q: Array, k: Array, v: Array, *, scale: float | None = None, causal: Causal = None
) -> Mapping[Key, Array]:
    """Every stage of the emulated algorithm on (dequantised) inputs."""
    return stages_of(emulate(algorithm, q, k, v, scale=scale, causal=causal, keep_stages=True), algorithm, scale=scale)


def stages_of(emulated: Emulated, algorithm: Algorithm, *, scale: float | None = None) -> Mapping[Key, Array]:
    """The stages of an emulation that kept them; `products` are scores before the scale."""
    stages: dict[Key, Array] = {("q", None): emulated.q}
    factor = default_scale(emulated.q.shape[-1]) if scale is None else scale
    factor *= 1.0 if algorithm.exp_base == math.e else math.log2(math.e)
    for tile in emulated.tiles:
        for name in PER_TILE:
            stages[name, tile.index] = tile.stage(name)
        in_q = algorithm.scale_in == "q"
        stages["products", tile.index] = tile.scores if in_q else tile.scores / np.float32(factor)
    stages["o", None], stages["lse", None] = emulated.o, emulated.lse
    return stages
