"""Recorded runs for the tests of taps: a rung or a changed rung on a small problem, and the expected stages."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

import weft.kernels
from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.quantise import SimFp8
from weft.attention.reference import Causal, visible
from weft.attention.regimes import make
from weft.attention.shapes import Shape
from weft.diagnose.diagnose import expected
from weft.diagnose.locate import locate
from weft.diagnose.taps import Key, Taps
from weft.engines.kernel_file import load

KERNELS = Path(weft.kernels.__file__).parent
MASKS: tuple[Causal, ...] = (None, "top_left", "bottom_right")
PLAIN = Algorithm(block_m=16, block_n=32, out_dtype="f16")
ON_TENSOR_CORES = replace(PLAIN, operand_dtype="f16", p_dtype="f16")
BY_KEY = replace(PLAIN, block_n=1)
ALGORITHMS = {
    "scalar": BY_KEY,
    "fp8_scalar": BY_KEY,
    "fa1": PLAIN,
    "split_k": replace(BY_KEY, splits=4),
    "wmma_qk": replace(PLAIN, operand_dtype="f16"),
    "wmma": ON_TENSOR_CORES,
    "fp8_wmma": ON_TENSOR_CORES,
}
WARPS = {"scalar": "2", "fp8_scalar": "2", "split_k": "2"}
"""Queries of a CTA where a warp has one; elsewhere a CTA has BLOCK_M = 16."""


@dataclass(frozen=True)
class Recorded:
    """A recorded run with the expected stages."""

    taps: Taps
    expected: Mapping[Key, Array]
    mask: npt.NDArray[np.bool_]
    """(sq, skv)."""
    rows: range
    """Queries of the recorded CTA."""

    def worst(self, stage: str, tile: int | None = None) -> float:
        """Return the largest difference of observed elements; a NaN, or an infinity on one side only, is infinite."""
        tap = self.taps.at(stage, tile)
        assert tap is not None, f"{stage} {tile} was not observed"
        got, wanted = tap.values[tap.observed], self.expected[stage, tile].astype(np.float64)[tap.observed]
        with np.errstate(invalid="ignore"):
            error = np.where(got == wanted, 0.0, np.abs(got - wanted))
        return float(np.where(np.isnan(error), np.inf, error).max())


@cache
def record(
    rung: str, shape: Shape, causal: Causal = None, *, position: tuple[int, int] = (0, 0), path: Path | None = None
) -> Recorded:
    """Follow the CTA at `position`."""
    arrays, meant = inputs(rung, shape)
    defines = {"ELEMENT": "half", "CAUSAL": str(MASKS.index(causal))}
    queries = int(WARPS[rung]) if rung in WARPS else 16
    defines |= {"WARPS": WARPS[rung]} if rung in WARPS else {"BLOCK_M": "16"}
    kernel = load(path or KERNELS / f"{rung}.cu", defines=defines)
    taps = locate(kernel, arrays, ALGORITHMS[rung], causal=causal, position=position, whole=False)
    first = position[0] * queries
    rows = range(first, min(first + queries, shape.sq))
    wanted = expected(taps.algorithm, *meant, causal=causal)
    return Recorded(taps, wanted, visible(shape.sq, shape.skv, causal), rows)


def inputs(rung: str, shape: Shape) -> tuple[dict[str, Array], list[Array]]:
    """Return the kernel's inputs, and their dequantised values."""
    given = make("unit_normal", shape, "f16", 3)
    if not rung.startswith("fp8"):
        return dict(zip("qkv", given, strict=True)), list(given)
    arrays: dict[str, Array] = {}
    meant = []
    for name, x in zip("qkv", given, strict=True):
        coded = SimFp8().encode(x.astype(np.float32))
        arrays |= {f"{name}_code": coded.codes, f"{name}_scale": coded.scale.astype(np.float32)}
        meant.append(SimFp8().decode(coded.codes, coded.scale).astype(np.float32))
    return arrays, meant
