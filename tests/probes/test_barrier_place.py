"""The cure of a race in a CTA names the line after which the barrier belongs, whichever access came first in the run.

Kernels with two barriers per iteration, one after the write and one after the read; each is removed in turn. Under
another schedule another warp runs ahead, so the same missing barrier is a read after a write or a write after a read.
"""

from functools import cache

import numpy as np
import pytest

import weft
from weft.core.records import Binary, Finding
from weft.probes import RaceCheck

SOURCE = r"""
__device__ __forceinline__ void put(float* tile, const float* x, int t) {
    tile[t] = x[t];
}

// Every warp writes and reads.
extern "C" __global__ void both(const float* x, float* y) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 3; ++i) {
        tile[t] = x[64 * i + t];  // both writes
        if (AFTER_WRITE) __syncthreads();
        sum += tile[63 - t];  // both reads
        if (AFTER_READ) __syncthreads();
    }
    y[t] = sum;
}

// One warp writes, the other reads.
extern "C" __global__ void apart(const float* x, float* y) {
    __shared__ float tile[32];
    const int t = threadIdx.x, warp = t / 32;
    float sum = 0;
    for (int i = 0; i < 3; ++i) {
        if (warp == WRITER) tile[t % 32] = x[64 * i + t];  // apart writes
        if (AFTER_WRITE) __syncthreads();
        if (warp != WRITER) sum += tile[t % 32];  // apart reads
        if (AFTER_READ) __syncthreads();
    }
    y[t] = sum;
}

// One buffer takes two tiles in turn, by one function: K, then V. A barrier belongs after the call.
extern "C" __global__ void in_turn(const float* x, float* y) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < 3; ++i) {
        put(tile, x + 64 * i, t);  // in_turn writes
        if (AFTER_WRITE) __syncthreads();
        sum += tile[63 - t];  // in_turn reads
        if (AFTER_READ) __syncthreads();
        put(tile, x + 64 * i + 64, t);
        __syncthreads();
        sum *= tile[63 - t];
        __syncthreads();
    }
    y[t] = sum;
}
"""
SCHEDULES = (0, 1, 2, 3)


def line_of(text: str) -> int:
    """Return the line with this comment."""
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if line.endswith(f"// {text}"))


@cache
def binary(after_write: int, after_read: int, writer: int) -> Binary:
    defines = {"AFTER_WRITE": after_write, "AFTER_READ": after_read, "WRITER": writer}
    return weft.compile_cuda(
        SOURCE,
        name="rounds.cu",
        defines={name: str(value) for name, value in defines.items()},
        entries=["both", "apart", "in_turn"],
    )


def findings(entry: str, schedule: int, *, after_write: int, after_read: int, writer: int) -> tuple[Finding, ...]:
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    args = [np.ones(5 * 64, np.float32), np.zeros(64, np.float32)]
    return gpu.launch(binary(after_write, after_read, writer), entry, 1, 64, args, watch=RaceCheck()).findings


@pytest.mark.parametrize("writer", (0, 1))
@pytest.mark.parametrize("entry", ("both", "apart", "in_turn"))
def test_a_barrier_missing_after_the_read_is_requested_there(entry: str, writer: int) -> None:
    codes = set()
    for schedule in SCHEDULES:
        found = findings(entry, schedule, after_write=1, after_read=0, writer=writer)
        assert {finding.remedy for finding in found} == {f"add a barrier after line {line_of(f'{entry} reads')}"}
        codes |= {finding.code for finding in found}
    assert codes == {"R102", "R103"}, "both orders must occur in this test"


@pytest.mark.parametrize("writer", (0, 1))
@pytest.mark.parametrize("entry", ("both", "apart", "in_turn"))
def test_a_barrier_missing_after_the_write_is_requested_there(entry: str, writer: int) -> None:
    line, codes = line_of(f"{entry} writes"), set()
    for schedule in SCHEDULES:
        found = findings(entry, schedule, after_write=0, after_read=1, writer=writer)
        assert {finding.remedy for finding in found} == {f"add a barrier after line {line}"}
        codes |= {finding.code for finding in found}
    assert codes == {"R102", "R103"}


@pytest.mark.parametrize("entry", ("both", "apart", "in_turn"))
def test_with_both_there_is_no_race(entry: str) -> None:
    for schedule in SCHEDULES:
        assert findings(entry, schedule, after_write=1, after_read=1, writer=0) == ()


OVERWRITTEN = r"""
extern "C" __global__ void shift(float* x) {
    const int t = threadIdx.x;
    const float next = x[(t + 32) % 64];
    x[t] = next;
}
"""


def test_what_the_host_wrote_counts_as_written() -> None:
    """Each thread reads a place of global memory, then another overwrites it: the barrier belongs after the read."""
    gpu = weft.VirtualGPU(threads=1)
    found = gpu.launch(
        weft.compile_cuda(OVERWRITTEN, name="shift.cu"), "shift", 1, 64, [np.ones(64, np.float32)], watch=RaceCheck()
    ).findings
    assert {finding.code for finding in found} == {"R102", "R103"}
    assert {finding.remedy for finding in found} == {"add a barrier after line 4"}
