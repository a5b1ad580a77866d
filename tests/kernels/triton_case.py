"""A Triton case from its tensors and scalars, specialised as Triton's own JIT does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.kernels.case import Array, Arrays, Buffer, Case, Dim3, Launch, Tolerance, Triton, unchanged

SCRATCH = (np.uint64(0), np.uint64(0))
"""Triton appends two scratch pointers to every kernel; these kernels use none."""

HOST = {
    "fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16,
    "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2,
    "i8": np.int8, "u8": np.uint8, "i32": np.int32,
}  # fmt: skip
"""Triton's names of element types → NumPy's."""

UNIT = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Unit roundoff: the largest relative error of rounding to nearest."""


@dataclass(frozen=True)
class Kernel:
    """A jitted function and its arguments: tensors (argument `<name>_ptr`), then scalars, then constants."""

    module: str
    name: str
    tensors: Mapping[str, str]
    scalars: Mapping[str, int | float]
    constants: Mapping[str, int | bool | str]
    num_warps: int = 4
    num_stages: int = 3
    fmad: bool = True
    debug: bool = False
    arch: str = "sm_89"
    wide: tuple[str, ...] = ()
    """Scalars of 64 bits."""

    def source(self) -> Triton:
        """Integers of 1 become constants, and multiples of 16 are promised, as Triton's JIT does."""
        pointers = {f"{name}_ptr": f"*{element}" for name, element in self.tensors.items()}
        ones = [name for name, value in self.scalars.items() if _is_one(value)]
        scalars = {name: self._type(name) for name in self.scalars if name not in ones}
        multiples = [name for name, value in self.scalars.items() if isinstance(value, int) and value % 16 == 0]
        return Triton(
            kernel=self.name,
            signature={**pointers, **scalars},
            constexprs={**self.constants, **dict.fromkeys(ones, 1)},
            aligned=(*pointers, *multiples),
            num_warps=self.num_warps,
            num_stages=self.num_stages,
            module=self.module,
            fmad=self.fmad,
            debug=self.debug,
            arch=self.arch,
        )

    def launch(self, grid: Dim3) -> Launch:
        """Return the launch for `source`."""
        kinds: dict[str, np.dtype[Any]] = {
            "i32": np.dtype(np.int32),
            "i64": np.dtype(np.int64),
            "fp32": np.dtype(np.float32),
        }
        scalars = [kinds[self._type(name)].type(value) for name, value in self.scalars.items() if not _is_one(value)]
        return Launch(self.name, grid, (32 * self.num_warps, 1, 1), (*self.tensors, *scalars, *SCRATCH))

    def _type(self, name: str) -> str:
        return "fp32" if isinstance(self.scalars[name], float) else "i64" if name in self.wide else "i32"


def _is_one(value: float) -> bool:
    return isinstance(value, int) and value == 1


def triton_case(
    name: str,
    kernel: Kernel,
    grid: Dim3,
    inputs: Callable[[np.random.Generator], Arrays],
    expected: Callable[[Arrays], Arrays],
    *,
    outputs: Mapping[str, tuple[int, ...]] = {},
    tolerance: Mapping[str, Tolerance] = {},
    canonical: Callable[[Arrays], Arrays] = unchanged,
) -> Case:
    """`outputs` gives shapes; the types are those of the kernel's tensors."""
    return Case(
        name=f"triton_{name}",
        source=kernel.source(),
        launches=(kernel.launch(grid),),
        inputs=inputs,
        outputs={out: Buffer(shape, HOST[kernel.tensors[out]]) for out, shape in outputs.items()},
        expected=expected,
        tolerance=tolerance,
        canonical=canonical,
    )


def normal(rng: np.random.Generator, *shape: int, element: str = "fp32") -> Array:
    """Standard normal, clipped at ±4."""
    return rng.standard_normal(shape).clip(-4, 4).astype(HOST[element])


def integers(rng: np.random.Generator, low: int, high: int, *shape: int, element: str = "i32") -> Array:
    """Integers in [low, high)."""
    return rng.integers(low, high, shape).astype(HOST[element])
