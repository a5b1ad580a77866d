"""Splits a kernel's error into named parts, from exact attention to the kernel's output."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .dtypes import Array, numpy_dtype, rounded
from .emulate import Algorithm, Emulated, emulate
from .error_report import Block, ErrorReport, compare
from .gates import GateResult, flash_gate, lse_gate, tight_gate
from .quantise import Quantiser
from .reference import Attended, Causal, attention


@dataclass(frozen=True)
class Rungs:
    """Attention on the original inputs, on rounded ones, on dequantised ones, and as the kernel declares it."""

    exact: Attended
    in_dtype: Attended
    dequantised: Attended
    emulated: Emulated


@dataclass(frozen=True)
class Ladder:
    """A kernel's total error, split between adjacent rungs; the signed errors add up to `total`."""

    err_dtype: ErrorReport
    """Rounding the inputs to their type."""
    err_quant: ErrorReport
    """Quantising them."""
    err_algorithm: ErrorReport
    """The algorithm's declared rounding, tiling and merging."""
    err_kernel: ErrorReport
    """The difference between the kernel and its declared algorithm: bugs."""
    total: ErrorReport

    def parts(self) -> Mapping[str, ErrorReport]:
        """The four errors by name, in order."""
        return {
            "err_dtype": self.err_dtype,
            "err_quant": self.err_quant,
            "err_algorithm": self.err_algorithm,
            "err_kernel": self.err_kernel,
        }


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """What a kernel should compute; `rungs` computes it for inputs, `ladder` compares an output with it."""

    algorithm: Algorithm
    dtype: str
    quantiser: Quantiser | None = None
    causal: Causal = None
    scale: float | None = None

    def __post_init__(self) -> None:
        numpy_dtype(self.dtype)

    def rungs(self, q: Array, k: Array, v: Array) -> Rungs:
        """Return all references for these inputs, which may be wider than the dtype."""
        original = (q, k, v)
        near = tuple(rounded(x.astype(np.float64), self.dtype) for x in original)
        exact = self._attention(*original)
        same = all(np.array_equal(a.astype(np.float64), b) for a, b in zip(original, near, strict=True))
        in_dtype = exact if same else self._attention(*near)
        if self.quantiser is None:
            given, dequantised = near, in_dtype
        else:
            given = tuple(self.quantiser.decode(*self.quantiser.encode(x)) for x in near)
            dequantised = self._attention(*given)
        emulated = emulate(self.algorithm, *given, scale=self.scale, causal=self.causal)
        return Rungs(exact, in_dtype, dequantised, emulated)

    def ladder(self, rungs: Rungs, out: Array) -> Ladder:
        """Return the named errors of a kernel's output."""
        exact, in_dtype, dequantised, emulated = (
            each.o for each in (rungs.exact, rungs.in_dtype, rungs.dequantised, rungs.emulated)
        )
        return Ladder(
            err_dtype=compare(in_dtype, exact),
            err_quant=compare(dequantised, in_dtype),
            err_algorithm=compare(emulated, dequantised),
            err_kernel=compare(out, emulated),
            total=compare(out, exact),
        )

    def _attention(self, q: Array, k: Array, v: Array) -> Attended:
        return attention(q, k, v, scale=self.scale, causal=self.causal)


__all__ = [
    "Block",
    "ErrorReport",
    "GateResult",
    "Ladder",
    "Oracle",
    "Rungs",
    "compare",
    "flash_gate",
    "lse_gate",
    "tight_gate",
]
