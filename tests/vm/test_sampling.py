"""A launch of some CTAs: only they run, they see the entire grid, and they have their true coordinates."""

from functools import cache

import numpy as np
import pytest

import weft
from weft.core.errors import LaunchError, UsageError
from weft.core.records import Binary
from weft.engines.sample import CannotSample, CtaSample

SOURCE = r"""
#include <stdio.h>
__device__ int cta() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }

extern "C" __global__ void who(int* out) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicAdd(&total, 1);
    __syncthreads();
    if (threadIdx.x == 0) out[cta()] = 1000 * gridDim.x + 100 * gridDim.y + 10 * gridDim.z + total / 64;
}
extern "C" __global__ void say() { if (threadIdx.x == 0) printf("%d ", cta()); }
extern "C" __global__ void astray(int* out) { if (blockIdx.x == 4) out[1 << 20] = 0; else out[cta()] = 1; }
extern "C" __global__ void count(int* out) { out[1 + atomicAdd(out, 1)] = cta(); }
"""
GRID = (5, 3, 2)
SAMPLE = CtaSample(((4, 2), (0, 1), (2, 0), (0, 1)))
NUMBERS = [2, 5, 14, 17, 20, 29]
"""(2, 0), (0, 1) and (4, 2) in the first plane, then the same 15 later."""


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, name="sampling.cu")


@pytest.mark.parametrize("schedule", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_only_the_chosen_run_and_they_see_the_whole_grid(threads: int, schedule: int) -> None:
    out = np.full(30, -1, np.int32)
    gpu = weft.VirtualGPU(threads=threads, schedule=schedule)
    run = gpu.launch(binary(), "who", GRID, 64, [out], ctas=SAMPLE)
    assert run.clean and run.counters["ctas_left_out"] == 24
    assert np.flatnonzero(out != -1).tolist() == NUMBERS
    assert set(out[NUMBERS].tolist()) == {5321}


def test_a_part_costs_a_part() -> None:
    out = np.zeros(30, np.int32)
    whole, part = (weft.VirtualGPU().launch(binary(), "who", GRID, 64, [out], ctas=ctas) for ctas in (None, SAMPLE))
    assert part.instructions * 5 == whole.instructions
    assert "ctas_left_out" not in whole.counters


def test_printing_is_in_the_order_of_ctas() -> None:
    run = weft.VirtualGPU(schedule=3).launch(binary(), "say", GRID, 32, [], ctas=SAMPLE)
    assert run.printed.split() == [str(number) for number in NUMBERS]


def test_findings_name_the_true_cta() -> None:
    for schedule in (0, 1):
        gpu = weft.VirtualGPU(threads=1, schedule=schedule)
        run = gpu.launch(binary(), "astray", GRID, 1, [np.zeros(30, np.int32)], ctas=SAMPLE)
        assert {finding.cta for finding in run.findings} <= {(4, 2, 0), (4, 2, 1)}
        assert [finding.code for finding in run.findings] == ["M101"]


def test_ctas_that_may_depend_on_others_do_not_run_alone() -> None:
    out = np.zeros(31, np.int32)
    with pytest.raises(CannotSample, match="run all CTAs"):
        weft.VirtualGPU().launch(binary(), "count", GRID, 1, [out], ctas=SAMPLE)
    assert not out.any()


def test_ctas_must_be_in_the_grid() -> None:
    out = np.zeros(30, np.int32)
    for position in ((5, 0), (0, 3), (-1, 0)):
        with pytest.raises(LaunchError, match=r"outside the grid \(5, 3, 2\)"):
            weft.VirtualGPU().launch(binary(), "who", GRID, 64, [out], ctas=CtaSample((position,)))
    with pytest.raises(UsageError, match="sample is empty"):
        CtaSample(())
