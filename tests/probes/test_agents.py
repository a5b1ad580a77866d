"""Agents of the race check: what their completion orders, and what it does not; notes about global memory.

`tests/benchmarks/test_async_races.py` has the mistakes and the right pipelines.
"""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.async_races import KERNELS
from weft.core.finding_codes import Severity
from weft.core.records import Finding
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for

HANDED_ON = """
// weft: in      x : i32[64] = arange
// weft: out     y : i32[64]
// weft: launch  handed_on(x, y) grid(1) block(96)
#include "async.cuh"

__global__ void handed_on(const int* x, int* y) {
    __shared__ alignas(128) int tile[64], other[64];
    __shared__ unsigned long long bar;
    const int t = threadIdx.x;
    if (t == 0) init(&bar, 1);
    __syncthreads();
    if (t == ARRIVES) expect(&bar, 256);
    if (t == 32) {
        for (int i = 0; i < 64; i++) other[i] = i;
        load(tile, x, 256, &bar);
        AFTER
    }
    if (t < 32) {
        wait(&bar, 0);
        for (int i = t; i < 64; i += 32) y[i] = tile[i] + other[i];
    }
}
"""
UPDATED = """
// weft: inout   x : i32[128] = arange
// weft: out     y : i32[64]
// weft: launch  updated(x, y) grid(1) block(64)
#include "async.cuh"

__global__ void updated(int* x, int* y) {
    __shared__ alignas(128) int tile[64];
    __shared__ unsigned long long bar;
    const int t = threadIdx.x;
    if (t == 0) init(&bar, 1);
    __syncthreads();
    x[64 + t] = t;
    if (t == 0) {
        expect(&bar, 256);
        load(tile, x, 256, &bar);
    }
    wait(&bar, 0);
    y[t] = tile[t];
}
"""


def found(text: str, folder: Path, schedule: int) -> tuple[Finding, ...]:
    (folder / "async.cuh").write_text((KERNELS / "async.cuh").read_text())
    file = folder / "kernel.cu"
    file.write_text(text)
    done = load(file, gpu="h100").run(VirtualGPU("h100", schedule=schedule), watch=watch_for(["racecheck"]))
    assert np.asarray(done.arrays["y"]).shape
    return done.run.findings


@pytest.mark.parametrize("schedule", (0, 1, 2))
def test_a_load_hands_on_its_own_bytes_and_not_what_its_thread_did(tmp_path: Path, schedule: int) -> None:
    """PTX ISA 8.9.1.1. The thread that loads hands on its stores only if it arrives after them."""
    by_another = HANDED_ON.replace("ARRIVES", "64").replace("AFTER", "")
    (finding,) = found(by_another, tmp_path, schedule)
    assert (finding.code, finding.level, finding.name) == ("R102", Severity.ERROR, "other")
    by_itself = HANDED_ON.replace("ARRIVES", "-1").replace("AFTER", "expect(&bar, 256);")
    assert found(by_itself, tmp_path, schedule) == ()


@pytest.mark.parametrize("kernel, notes", [("ring", 0), ("drain", 1)])
def test_a_note_says_where_global_memory_was_not_judged(kernel: str, notes: int, tmp_path: Path) -> None:
    findings = found((KERNELS / f"{kernel}.cu").read_text(), tmp_path, 0)
    assert [(each.code, each.level) for each in findings] == [("R104", Severity.INFO)] * notes


def test_a_load_from_a_buffer_that_the_launch_writes_has_a_note(tmp_path: Path) -> None:
    (note,) = found(UPDATED, tmp_path, 0)
    assert (note.code, note.level) == ("R104", Severity.INFO) and "global memory were not checked" in note.message
