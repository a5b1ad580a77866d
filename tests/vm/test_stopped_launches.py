"""A launch that a CTA stops has the same findings for every number of threads."""

import numpy as np
import pytest

import weft
from weft.vm.runtime.watch import Instrumentation

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


def test_a_watcher_can_stop_a_launch_at_its_first_finding() -> None:
    """What a repair tries is given up at its first finding: the other CTAs, and the rest of the loop, do not run."""

    class First(Instrumentation):
        stops_at = 1

    code = """
    extern "C" __global__ void strays(volatile int* o, volatile int* seen) {
        #pragma unroll 1
        for (int i = 0; i < 20000; ++i) { o[64] = i; seen[blockIdx.x] = i + 1; }
    }
    """
    binary = weft.compile_cuda(code, name="k.cu")
    counts = {}
    for name, watch in (("all", Instrumentation()), ("first", First()), ("all again", Instrumentation())):
        seen = np.zeros(8, np.int32)
        run = weft.VirtualGPU(threads=1).launch(binary, "strays", 8, 32, [np.zeros(64, np.int32), seen], watch=watch)
        assert "M101" in {finding.code for finding in run.findings}
        counts[name] = seen.tolist()
    assert counts["all"] == counts["all again"] == [20000] * 8
    assert 0 < counts["first"][0] < 20000 and counts["first"][1:] == [0] * 7
