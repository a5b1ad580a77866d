"""A case of the kernel suite: a source, its launches, its inputs and the expected outputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Dim3 = tuple[int, int, int]

CUDA_FOLDER = Path(__file__).parent / "cuda"


@dataclass(frozen=True)
class Cuda:
    """A file of the `cuda` folder. `entries` are name expressions."""

    file: str
    entries: tuple[str, ...]
    defines: Mapping[str, str] = field(default_factory=dict)
    arch: str = "sm_89"
    debug: bool = False


@dataclass(frozen=True)
class Triton:
    """A kernel of a module next to this one. `aligned` names the arguments known to be multiples of 16."""

    kernel: str
    signature: Mapping[str, str]
    constexprs: Mapping[str, int | bool | str]
    aligned: tuple[str, ...]
    num_warps: int = 4
    num_stages: int = 3
    arch: str = "sm_89"
    module: str = "triton_kernels"
    fmad: bool = True
    debug: bool = False
    """Keep `tl.device_assert`."""


@dataclass(frozen=True)
class Struct:
    """A struct passed by value: members in order, laid out as in C."""

    members: "tuple[Argument, ...]"


Argument = str | np.generic | Struct
"""The name of an array (its device address is passed), a scalar of the parameter's own type, or a struct."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch. Triton's scratch pointers are arguments like any other."""

    entry: str
    grid: Dim3
    block: Dim3
    args: tuple[Argument, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Buffer:
    """An output that the kernel must fill: it starts as 0xFF bytes, which is NaN in every float type."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike


@dataclass(frozen=True)
class Tolerance:
    """|got - expected| <= absolute + relative · |expected| everywhere; the RMS of the difference <= rms."""

    absolute: float
    relative: float = 0.0
    rms: float = float("inf")


EXACT = Tolerance(0.0)


def unchanged(arrays: Arrays) -> Arrays:
    """Return the outputs unchanged."""
    return arrays


@dataclass(frozen=True)
class Case:
    """`inputs` makes the arrays the kernels read or update, `outputs` the ones they only write.

    `expected` maps the inputs to the expected outputs; every array it names is compared. `canonical` first brings
    outputs whose order is free into one form.
    """

    name: str
    source: Cuda | Triton
    launches: tuple[Launch, ...]
    inputs: Callable[[np.random.Generator], Arrays]
    outputs: Mapping[str, Buffer]
    expected: Callable[[Arrays], Arrays]
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    """By output; EXACT if none is given."""
    canonical: Callable[[Arrays], Arrays] = unchanged
    printed: str = ""


def ceil_div(a: int, b: int) -> int:
    """Return how many blocks of b cover a."""
    return -(-a // b)
