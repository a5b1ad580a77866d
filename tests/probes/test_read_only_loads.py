"""Loads through the read-only cache of bytes that the launch writes are found, in any order."""

from functools import cache

import numpy as np
import pytest

import weft
from weft.core.records import Binary, Finding
from weft.probes import Probes, RaceCheck

SOURCE = r"""
__device__ unsigned count;

// The last CTA adds what all have left.
template <bool READ_ONLY> __global__ void merge(const float* x, float* part, float* y) {
    __shared__ bool last;
    const int t = threadIdx.x;
    part[64 * blockIdx.x + t] = 2 * x[64 * blockIdx.x + t];
    __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd(&count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += READ_ONLY ? __ldg(&part[64 * i + t]) : part[64 * i + t];
    y[t] = sum;
    if (t == 0) count = 0;
}
// One half of a buffer is read, the other written.
__global__ void halves(const float* x, float* part, float* y) {
    const int t = threadIdx.x;
    if (blockIdx.x == 0) part[64 + t] = __ldg(&part[t]) + x[t];
}
// Each thread its own element, read first.
__global__ void in_place(const float* x, float* part, float* y) {
    const int at = 64 * blockIdx.x + threadIdx.x;
    part[at] = 2 * __ldg(&part[at]);
}
// Another thread's element, read first; the barrier does not help.
__global__ void turned(const float* x, float* part, float* y) {
    const int t = threadIdx.x;
    float v = __ldg(&part[64 * blockIdx.x + 63 - t]);
    __syncthreads();
    part[64 * blockIdx.x + t] = v;
}
// One's own element, written first.
__global__ void written_first(const float* x, float* part, float* y) {
    const int at = 64 * blockIdx.x + threadIdx.x;
    part[at] = x[at];
    float v;
    asm volatile("ld.global.nc.f32 %0, [%1]; // as __ldg" : "=f"(v) : "l"(&part[at]) : "memory");
    if (v == 5) y[at] = v;
}
"""
RIGHT = ("merge<false>", "halves", "in_place")
WRONG = ("merge<true>", "turned", "written_first")
GRID = 4


@cache
def binary() -> Binary:
    return weft.compile_cuda(SOURCE, name="read_only.cu", entries=[*RIGHT, *WRONG])


def found(name: str, schedule: int) -> list[Finding]:
    x, part, y = np.ones(64 * GRID, np.float32), np.zeros(64 * GRID, np.float32), np.zeros(64, np.float32)
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    names = ["x", "part", "y"]
    run = gpu.launch(binary(), name, GRID, 64, [x, part, y], names=names, watch=Probes(RaceCheck()))
    return [finding for finding in run.findings if finding.level == "error"]


@pytest.mark.parametrize("schedule", (0, 1))
@pytest.mark.parametrize("name", RIGHT)
def test_what_no_other_thread_writes_may_be_read(name: str, schedule: int) -> None:
    assert found(name, schedule) == []


@pytest.mark.parametrize("schedule", (0, 1))
@pytest.mark.parametrize("name", WRONG)
def test_what_the_launch_writes_may_not_be_read(name: str, schedule: int) -> None:
    (finding,) = found(name, schedule)
    assert (finding.code, finding.name) == ("R106", "part")
    lines = SOURCE.splitlines()
    assert finding.place is not None and finding.other is not None
    places = [place for place in (finding.place, finding.place.inlined_at) if place and "read_only.cu" in place.file]
    assert "__ldg" in lines[places[-1].line - 1]
    assert "part[" in lines[finding.other.line - 1] and "=" in lines[finding.other.line - 1]
