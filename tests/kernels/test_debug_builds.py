"""Every CUDA kernel of the suite as its -G build: the same verdict, and without contraction the same bits.

A debug build has calls, generic addresses and its locals in memory; it is another program that computes the same.
"""

import numpy as np
import pytest

import weft
from tests.in_turn import one_in
from tests.kernels.case import CUDA_FOLDER, Case, Cuda
from tests.kernels.cases import CASES
from tests.kernels.test_kernels import run_case
from weft.core.records import Binary

SLOW = "pipelines.cu"
"""A debug build of libcu++ is tens of thousands of instructions per kernel, a minute to compile."""
POINTERS = """
__device__ int twice(int x) { return 2 * x; }
__device__ int square(int x) { return x * x; }
__device__ int (*table[2])(int) = {twice, square};
__device__ __noinline__ int apply(int (*f)(int), int x) { return f(x) + 1; }
__global__ void k(const int* which, int* y) { y[threadIdx.x] = apply(table[which[threadIdx.x]], threadIdx.x); }
"""


def _one_per_kernel() -> list[Case]:
    """Return the last case of every kernel, for any template arguments; `benchmarks/debug_builds.py` runs all."""
    chosen = {
        (case.source.file, *(entry.partition("<")[0] for entry in case.source.entries)): case
        for case in CASES
        if isinstance(case.source, Cuda) and case.source.file != SLOW
    }
    return list(chosen.values())


def build(source: Cuda, *, debug: bool) -> Binary:
    return weft.compile_cuda(
        CUDA_FOLDER / source.file,
        arch=source.arch,
        defines=source.defines,
        entries=source.entries,
        debug=debug,
        fmad=False,
    )


@pytest.mark.parametrize("case", one_in(6, _one_per_kernel()), ids=lambda case: case.name)
def test_the_debug_build_computes_the_same(case: Case) -> None:
    pytest.importorskip("torch")
    same_bits(case)


def same_bits(case: Case) -> None:
    """Run both builds of a case; compare each with the expected result, and the two with each other."""
    assert isinstance(case.source, Cuda)
    optimised, debug = (run_case(case, build(case.source, debug=debug)) for debug in (False, True))
    for name, values in optimised.items():
        np.testing.assert_array_equal(debug[name].view(np.uint8), values.view(np.uint8), name)


@pytest.mark.parametrize("debug", (False, True))
def test_calls_through_pointers(debug: bool) -> None:
    binary = weft.compile_cuda(POINTERS, name="pointers.cu", entries=["k"], debug=debug)
    assert ".callprototype" in binary.ptx
    threads = np.arange(64, dtype=np.int32)
    which, y = threads // 3 % 2, np.zeros(64, np.int32)
    run = weft.VirtualGPU().launch(binary, "k", 1, 64, [which, y])
    assert run.clean
    np.testing.assert_array_equal(y, np.where(which, threads**2, 2 * threads) + 1)
