"""A launch that a CTA stops has the same findings for every number of threads."""

import numpy as np
import pytest

import weft

SOURCE = """
#include <assert.h>
#include <stdio.h>
extern "C" __global__ void asserts(int* o, int from) {
    if (threadIdx.x == 0) printf("%d ", blockIdx.x);
    o[threadIdx.x + 64 * (blockIdx.x % 8 == 7)] = 1;
    assert((int)blockIdx.x < from);
}
extern "C" __global__ void traps(int* o, int from) {
    if ((int)blockIdx.x >= from) __trap();
    o[threadIdx.x] = 1;
}
extern "C" __global__ void spins(volatile int* o, int from) {
    while ((int)blockIdx.x >= from) o[threadIdx.x] = 1;
}
"""


@pytest.mark.parametrize("kernel", ["asserts", "traps", "spins"])
@pytest.mark.parametrize("schedule", [0, 1])
def test_the_number_of_threads_changes_no_finding(kernel: str, schedule: int) -> None:
    binary = weft.compile_cuda(SOURCE, name="k.cu")
    found = set()
    for threads in (1, 2, 3, 8):
        for _ in range(3):
            gpu = weft.VirtualGPU(threads=threads, schedule=schedule)
            run = gpu.launch(binary, kernel, 64, 32, [np.zeros(64, np.int32), 13], max_steps=20_000)
            assert not run.clean
            found.add((run.findings, run.printed))
    assert len(found) == 1
