"""Every kernel of the suite on the virtual GPU, against PyTorch and NumPy."""

import zlib
from functools import cache
from importlib import import_module

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.kernels.case import (
    CUDA_FOLDER,
    EXACT,
    Argument,
    Array,
    Arrays,
    Buffer,
    Case,
    Cuda,
    Struct,
    Tolerance,
    Triton,
)
from tests.kernels.cases import CASES
from weft.core.records import Binary
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation


@cache
def _compiled(case: str) -> Binary:
    return build(next(c.source for c in CASES if c.name == case))


def build(source: Cuda | Triton) -> Binary:
    """Compile the source of a case with its options."""
    if isinstance(source, Cuda):
        return weft.compile_cuda(
            CUDA_FOLDER / source.file,
            arch=source.arch,
            defines=source.defines,
            entries=source.entries,
            debug=source.debug,
        )
    pytest.importorskip("triton")
    return weft.compile_triton(
        getattr(import_module(f"tests.kernels.{source.module}"), source.kernel),
        signature=source.signature,
        constexprs=source.constexprs,
        arch=source.arch,
        num_warps=source.num_warps,
        num_stages=source.num_stages,
        attrs=dict.fromkeys(source.aligned, 16),
        fmad=source.fmad,
        options={"debug": source.debug},
    )


def _poisoned(buffer: Buffer) -> Array:
    dtype = np.dtype(buffer.dtype)
    size_bytes = int(np.prod(buffer.shape)) * dtype.itemsize
    return np.full(size_bytes, 0xFF, np.uint8).view(dtype).reshape(buffer.shape)


def _argument(argument: Argument, arrays: Arrays) -> object:
    """Return an array by its name, a struct as the tuple of its members, a scalar unchanged."""
    if isinstance(argument, str):
        return arrays[argument]
    if isinstance(argument, Struct):
        return tuple(_argument(member, arrays) for member in argument.members)
    return argument


def _assert_close(name: str, got: Array, expected: Array, tolerance: Tolerance) -> None:
    assert got.shape == expected.shape, name
    if tolerance == EXACT:
        wrong = np.flatnonzero(~(got == expected).reshape(-1))
        assert not wrong.size, f"{name}: {wrong.size} of {got.size} differ, the first at {wrong[0]}"
        return
    wide, reference = got.astype(np.float64), expected.astype(np.float64)
    error = np.abs(wide - reference)
    limit = tolerance.absolute + tolerance.relative * np.abs(reference)
    wrong = np.flatnonzero(~(error <= limit).reshape(-1))  # also true for NaN
    assert not wrong.size, f"{name}: {wrong.size} of {got.size} off by up to {error.max()}, first {wrong[0]}"
    rms = float(np.sqrt(np.mean(error**2)))
    assert rms <= tolerance.rms, f"{name}: RMS error {rms} above {tolerance.rms}"


@pytest.mark.parametrize("case", one_in(6, CASES), ids=lambda case: case.name)
def test_kernel(case: Case) -> None:
    pytest.importorskip("torch")
    run_case(case, _compiled(case.name))


def run_case(case: Case, binary: Binary, *, watch: Instrumentation = PLAIN) -> Arrays:
    """Launch `binary` for a case, compare the outputs with the expected ones, and return them."""
    inputs = case.inputs(np.random.default_rng(zlib.crc32(case.name.encode())))
    expected = case.expected({name: array.copy() for name, array in inputs.items()})
    arrays = {**inputs, **{name: _poisoned(buffer) for name, buffer in case.outputs.items()}}
    read_only = {name: array.copy() for name, array in inputs.items() if name not in expected}

    gpu = weft.VirtualGPU(case.source.arch)
    printed = ""
    for launch in case.launches:
        shared_bytes = binary.dynamic_shared_bytes if isinstance(case.source, Triton) else launch.shared_bytes
        args = [_argument(argument, arrays) for argument in launch.args]
        run = gpu.launch(binary, launch.entry, launch.grid, launch.block, args, shared_bytes=shared_bytes, watch=watch)
        assert not run.findings, "\n".join(map(str, run.findings))
        printed += run.printed

    assert printed == case.printed
    for name, before in read_only.items():
        assert arrays[name].tobytes() == before.tobytes(), f"{name} is an input and was changed"
    got = case.canonical(arrays)
    for name, wanted in expected.items():
        _assert_close(name, got[name], wanted, case.tolerance.get(name, EXACT))
    return {name: got[name] for name in expected}


def test_case_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
