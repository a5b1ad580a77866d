"""The limits that stop a kernel: budgets, deadlocks, bad addresses, traps and assertions. Nothing may stop the host."""

import functools
import json
import operator
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import weft
from weft.core.errors import WeftError
from weft.core.records import Binary, Finding, Run
from weft.vm.memory import GLOBAL_BASE

ALL = 0xFFFFFFFF
REPOSITORY = Path(__file__).parents[2]

SOURCE = r"""
#include <assert.h>

extern "C" __global__ void endless(volatile int* a) {
    while (a[0] == 0) {}
    a[2 + (threadIdx.x & 1)] = 1;
}

extern "C" __global__ void endless_for_odd_lanes(volatile int* a) {
    if (threadIdx.x & 1)
        while (a[0] == 0) {}
    a[2 + (threadIdx.x & 1)] = 1;
}

extern "C" __global__ void endless_around_a_barrier(volatile int* a) {
    while (a[0] == 0) __syncthreads();
    a[2 + (threadIdx.x & 1)] = 1;
}

extern "C" __global__ void endless_and_astray(volatile int* a) {
    while (a[0] == 0) {
        a[100000 + threadIdx.x] = 1;
        __syncthreads();
    }
    a[2 + (threadIdx.x & 1)] = 1;
}

extern "C" __global__ void two_warps_at_two_barriers(int* a) {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;");
    else
        asm volatile("bar.sync 2, 64;");
    a[threadIdx.x] = 1;
}

extern "C" __global__ void two_halves_at_two_barriers(int* a) {
    if (threadIdx.x < 16)
        asm volatile("barrier.sync 1, 32;");
    else
        asm volatile("barrier.sync 2, 32;");
    a[threadIdx.x] = 1;
}

extern "C" __global__ void store_at(int* before, int* a, int* behind, long long at) {
    if (threadIdx.x >= 28)
        a[at + threadIdx.x] = 7;  // line: store
}

extern "C" __global__ void load_at(int* a, long long at, int* out) {
    out[threadIdx.x] = a[at + threadIdx.x];  // line: load
}

extern "C" __global__ void add_at(int* a, long long at) {
    atomicAdd(a + at + threadIdx.x, 7);  // line: atomic
}

extern "C" __global__ void copy_at(const int* a, long long at, int* out) {
    __shared__ int tile[32];
    tile[threadIdx.x] = -1;
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + threadIdx.x));
    const int* from = a + at + threadIdx.x;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");  // line: copy
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = tile[threadIdx.x];
}

extern "C" __global__ void shared_at(int* out, int at) {
    __shared__ int tile[64];
    tile[threadIdx.x] = 1;
    tile[threadIdx.x + 32] = 1;
    __syncthreads();
    out[threadIdx.x] = tile[at + threadIdx.x];  // line: shared
}

extern "C" __global__ void dynamic_shared_at(int* out, int at) {
    extern __shared__ int block[];
    block[at + threadIdx.x] = 5;  // line: dynamic
    __syncthreads();
    out[threadIdx.x] = block[threadIdx.x];
}

extern "C" __global__ void local_at(int* out, int at) {
    int own[16];
    for (int i = 0; i < 16; ++i) own[(i * 7 + out[0]) & 15] = i;
    out[threadIdx.x] = own[at + threadIdx.x];  // line: local
}

extern "C" __global__ void crooked_store(char* a, int at) {
    if (threadIdx.x % 2 == 0)
        *reinterpret_cast<int*>(a + at + 4 * threadIdx.x) = 7;  // line: crooked
}

extern "C" __global__ void crooked_shared(int* out, int at) {
    __shared__ __align__(16) char bytes[256];
    bytes[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = *reinterpret_cast<short*>(bytes + at + 2 * threadIdx.x);  // line: crooked_shared
}

extern "C" __global__ void trap_in_lane_5(int* a) {
    a[threadIdx.x] = 1;
    if (threadIdx.x == 5) __trap();  // line: trap
    a[threadIdx.x] = 2;
}

extern "C" __global__ void check(const int* a, int* out) {
    assert(a[threadIdx.x] < 30);  // line: assert
    out[threadIdx.x] = a[threadIdx.x];
}

extern "C" __global__ void flag_between_warps(int* out) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        while (flag == 0) {}
        out[threadIdx.x] = flag;
    } else if (threadIdx.x == 63) {
        flag = 42;
    }
}

extern "C" __global__ void flag_between_lanes(int* out) {
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x & 1) {
        while (flag == 0) {}
        out[threadIdx.x] = flag;
    } else if (threadIdx.x == 30) {
        flag = 42;
    }
}
"""


@functools.cache
def _compiled() -> Binary:
    return weft.compile_cuda(SOURCE, name="limits.cu")


def _launch(entry: str, args: list[object], *, block: int = 32, shared_bytes: int = 0, max_steps: int = 1 << 30) -> Run:
    gpu = weft.VirtualGPU()
    return gpu.launch(_compiled(), entry, 1, block, args, shared_bytes=shared_bytes, max_steps=max_steps)


def _line(mark: str) -> int:
    return next(n for n, text in enumerate(SOURCE.splitlines(), 1) if text.endswith(f"// line: {mark}"))


def _only(run: Run, code: str) -> Finding:
    assert [finding.code for finding in run.findings] == [code], run.findings
    return run.findings[0]


def _assert_at(finding: Finding, mark: str, lanes: int) -> None:
    assert finding.place is not None
    assert Path(finding.place.file).name == "limits.cu"
    assert finding.place.line == _line(mark)
    assert finding.lanes == lanes, hex(finding.lanes)


def _zeros(count: int = 64) -> npt.NDArray[np.int32]:
    return np.zeros(count, np.int32)


# -- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["endless", "endless_for_odd_lanes"])
@pytest.mark.parametrize("block", [32, 40, 1024])
def test_infinite_loop_exhausts_its_budget(entry: str, block: int) -> None:
    a, steps = _zeros(), 200_000
    _launch(entry, [a], block=block, max_steps=1)  # compiles
    start = time.perf_counter()
    run = _launch(entry, [a], block=block, max_steps=steps)
    seconds = time.perf_counter() - start
    assert _only(run, "S302")
    assert a[3] == 0, "no odd lane passes"
    # A step is a loop iteration; this one has about 3 instructions, and slices are not cut short.
    assert steps / 2 < run.instructions < 10 * steps
    assert seconds < 5


def test_a_loop_around_a_barrier_exhausts_its_budget() -> None:
    """No turn of it is as long as a slice: every one ends at the barrier."""
    a = _zeros()
    _launch("endless_around_a_barrier", [a], block=64, max_steps=1)  # compiles
    start = time.perf_counter()
    run = _launch("endless_around_a_barrier", [a], block=64, max_steps=20_000)
    assert _only(run, "S302") and a[2] == a[3] == 0
    assert time.perf_counter() - start < 5


def test_why_a_launch_was_stopped_is_reported_after_thousands_of_reports() -> None:
    run = _launch("endless_and_astray", [_zeros()], block=64, max_steps=20_000)
    assert {finding.code for finding in run.findings} == {"M101", "S302"}
    assert sum(finding.count for finding in run.findings) >= 4096


def test_a_finite_loop_stays_within_its_budget() -> None:
    a = _zeros()
    a[0] = 1
    assert _launch("endless", [a], max_steps=200_000).clean
    assert list(a[:4]) == [1, 0, 1, 1]


@pytest.mark.parametrize(("entry", "block"), [("two_warps_at_two_barriers", 64), ("two_halves_at_two_barriers", 32)])
def test_deadlock_at_barriers(entry: str, block: int) -> None:
    a = _zeros()
    findings = _launch(entry, [a], block=block).findings
    assert {finding.code for finding in findings} == {"S301"}
    assert functools.reduce(operator.or_, (finding.lanes for finding in findings)) == ALL, "all lanes wait"
    assert not a.any(), "no thread passes"


@pytest.mark.parametrize("schedule", [0, 1, 2, 3])
@pytest.mark.parametrize(("entry", "block", "step"), [("flag_between_warps", 64, 1), ("flag_between_lanes", 32, 2)])
def test_spin_on_a_shared_flag_ends(entry: str, block: int, step: int, schedule: int) -> None:
    out = _zeros()
    gpu = weft.VirtualGPU(schedule=schedule)
    run = gpu.launch(_compiled(), entry, 1, block, [out], max_steps=1 << 24)
    assert run.clean, run.findings
    assert (out[:32][step - 1 :: step] == 42).all()


# -- addresses -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outside:
    """An index into 64 ints and the lanes for which index + lane is outside."""

    at: int
    lanes: int
    code: str = "M101"


OUTSIDE = [
    Outside(33, 1 << 31),
    Outside(48, 0xFFFF0000),
    Outside(64, ALL),
    Outside(-5, 0b11111),
    Outside(64 + 10_000_000, ALL),
    Outside(1 << 40, ALL),
    Outside(-(1 << 45), ALL, "M104"),
    Outside(1 << 61, ALL, "M104"),
]
"""By one element, into the gap, far away, and where no device pointer can be."""


@pytest.mark.parametrize("outside", OUTSIDE, ids=lambda outside: str(outside.at))
def test_global_load_outside(outside: Outside) -> None:
    a, out = np.arange(1, 65, dtype=np.int32), _zeros(32)
    gpu = weft.VirtualGPU()
    assert gpu.launch(_compiled(), "load_at", 1, 32, [a, np.int64(0), out]).clean
    base = GLOBAL_BASE + gpu.memory.used  # the module's variables are placed now, `a` comes next
    finding = _only(gpu.launch(_compiled(), "load_at", 1, 32, [a, np.int64(outside.at), out]), outside.code)
    _assert_at(finding, "load", outside.lanes)
    first = (outside.lanes & -outside.lanes).bit_length() - 1
    assert finding.address == (base + 4 * (outside.at + first)) % (1 << 64)
    bad = outside.lanes >> np.arange(32) & 1
    expected = np.where(bad, 0, outside.at + 1 + np.arange(32))
    assert (out == expected).all(), "lanes inside load, the others get 0"


@pytest.mark.parametrize("outside", OUTSIDE, ids=lambda outside: str(outside.at))
def test_global_atomic_outside(outside: Outside) -> None:
    a = _zeros()
    _assert_at(_only(_launch("add_at", [a, np.int64(outside.at)]), outside.code), "atomic", outside.lanes)
    inside = 32 - outside.lanes.bit_count()
    assert np.count_nonzero(a == 7) == inside
    assert np.count_nonzero(a) == inside


@pytest.mark.parametrize("outside", OUTSIDE, ids=lambda outside: str(outside.at))
def test_asynchronous_copy_from_outside(outside: Outside) -> None:
    a, out = np.arange(1, 65, dtype=np.int32), _zeros(32)
    _assert_at(_only(_launch("copy_at", [a, np.int64(outside.at), out]), outside.code), "copy", outside.lanes)
    bad = outside.lanes >> np.arange(32) & 1
    assert (out == np.where(bad, -1, outside.at + 1 + np.arange(32))).all(), "no copy where the source is outside"


@pytest.mark.parametrize("at", [-29, -31, 64 - 30, 64, 64 + 20, 1 << 35, -(1 << 35)])
def test_stores_outside_change_nothing_else(at: int) -> None:
    """Lanes 28 to 31 store into the second of three buffers; the others and the red zones keep their bytes."""
    gpu = weft.VirtualGPU()
    before, a, behind = _zeros(), _zeros(), _zeros()
    arrays = [before, a, behind]
    assert gpu.launch(_compiled(), "store_at", 1, 32, [*arrays, np.int64(0)]).clean
    assert (a[28:32] == 7).all()
    a[:] = 0
    free = gpu.memory.used  # the buffers start here again
    gpu.memory.arena[free:] = 0xFF
    run = gpu.launch(_compiled(), "store_at", 1, 32, [*arrays, np.int64(at)])
    lanes = [lane for lane in range(28, 32) if not 0 <= at + lane < 64]
    _assert_at(_only(run, "M101"), "store", sum(1 << lane for lane in lanes))
    assert not before.any() and not behind.any()
    assert np.count_nonzero(a == 7) == np.count_nonzero(a) == 4 - len(lanes)
    left = gpu.memory.arena[free : free + (1 << 16)].view(np.int32)
    assert np.count_nonzero(left != -1) == 3 * 64, "only the buffers differ from the fill"


@pytest.mark.parametrize(("at", "lanes"), [(-1, 1), (200, ALL), (1 << 20, ALL), (-400, ALL), (-2_000_000, ALL)])
def test_shared_load_outside(at: int, lanes: int) -> None:
    out = _zeros()
    _assert_at(_only(_launch("shared_at", [out, np.int32(at)]), "M101"), "shared", lanes)
    assert np.count_nonzero(out == 1) == np.count_nonzero(out) == 32 - lanes.bit_count()


@pytest.mark.parametrize(("at", "lanes"), [(33, 1 << 31), (64, ALL)])
def test_shared_load_just_outside_its_array(at: int, lanes: int) -> None:
    _assert_at(_only(_launch("shared_at", [_zeros(), np.int32(at)]), "M101"), "shared", lanes)


@pytest.mark.parametrize(("at", "lanes"), [(33, 1 << 31), (48, 0xFFFF0000), (64, ALL), (1 << 28, ALL)])
def test_dynamic_shared_store_outside(at: int, lanes: int) -> None:
    """Dynamic memory comes last, so its end is the end of shared memory."""
    out = _zeros()
    run = _launch("dynamic_shared_at", [out, np.int32(at)], shared_bytes=64 * 4)
    _assert_at(_only(run, "M101"), "dynamic", lanes)


@pytest.mark.parametrize(("at", "lanes"), [(0, 0xFFFF0000), (8, 0xFFFFFF00), (16, ALL), (1 << 20, ALL), (-1000, ALL)])
def test_local_load_outside(at: int, lanes: int) -> None:
    out = _zeros()
    _assert_at(_only(_launch("local_at", [out, np.int32(at)]), "M101"), "local", lanes)
    own = np.zeros(16, np.int32)
    own[np.arange(16) * 7 % 16] = np.arange(16)
    inside = 32 - lanes.bit_count()
    assert (out[:inside] == own[at : at + inside]).all()
    assert not out[inside:].any()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_misaligned_store(at: int) -> None:
    a = _zeros()
    _assert_at(_only(_launch("crooked_store", [a.view(np.int8), np.int32(at)]), "M102"), "crooked", 0x55555555)
    assert not a.any()


def test_misaligned_shared_load() -> None:
    out = _zeros()
    _assert_at(_only(_launch("crooked_shared", [out, np.int32(1)]), "M102"), "crooked_shared", ALL)
    assert not out.any()


@pytest.mark.parametrize("seed", range(3))
def test_hostile_addresses_never_reach_the_host(seed: int) -> None:
    """Run in a separate process, so that a crash fails only this test."""
    command = [sys.executable, "-m", "tests.vm.hostile_addresses", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["accesses"] >= 2000
    assert answer["codes"] == ["M101", "M102", "M104"]


HOSTILE_TEXT = {
    "a parameter that is not there": "ld.param.b32 %r0, [p + 100000000];",
    "parameters past the end": "ld.param.v4.b32 {%r0, %r1, %r2, %r3}, [p];",
    "mma with too few registers": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r0}, {%f0};",
    "wmma.load with too few registers": "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r0}, [%r9], 16;",
    "wmma.store with too few registers": "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r9], {%f0}, 16;",
    "ldmatrix with too few registers": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0}, [%r9];",
    "an undeclared register": "add.u32 %r0, %q7, 1;",
    "a label that is not there": "bra NOWHERE;",
}


def _by_hand(body: str) -> Binary:
    text = f""".version 8.4
.target sm_89
.address_size 64
.visible .entry k(.param .u64 p)
{{
  .reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .f32 %f<8>; .reg .pred %p<2>;
  .shared .align 16 .b8 s[1024];
  ld.param.b64 %rd0, [p]; mov.u32 %r9, s; mov.b32 %r0, 0; mov.f32 %f0, 0f00000000; setp.eq.u32 %p0, %r0, 0;
  {body}
  ret;
}}
"""
    return Binary("k.ptx", "sm_89", "by hand", (), text, ptx_digest=body)


@pytest.mark.parametrize("body", HOSTILE_TEXT.values(), ids=HOSTILE_TEXT.keys())
def test_text_that_would_reach_past_a_buffer_is_refused_with_its_line(body: str) -> None:
    with pytest.raises(WeftError, match="PTX line 9"):
        weft.VirtualGPU().launch(_by_hand(body), "k", 1, 32, [_zeros()])


@pytest.mark.parametrize("block", [64, 40])
def test_barrier_that_does_not_exist(block: int) -> None:
    body = "mov.u32 %r5, 100000000; bar.red.popc.u32 %r0, %r5, %p0; st.global.b32 [%rd0], %r0;"
    run = weft.VirtualGPU().launch(_by_hand(body), "k", 1, block, [_zeros()])
    assert _only(run, "S303").ptx_line == 9


# -- the kernel itself gives up --------------------------------------------------------------------------------------


def test_trap() -> None:
    a = _zeros()
    _assert_at(_only(_launch("trap_in_lane_5", [a]), "X401"), "trap", 1 << 5)
    assert (a[:32] == 1).all(), "nothing after the trap"


@pytest.mark.parametrize("block", [32, 64])
def test_failed_assertion(block: int) -> None:
    run = _launch("check", [np.arange(block, dtype=np.int32), _zeros()], block=block)
    assert {finding.code for finding in run.findings} == {"X402"}
    assert [(f.warp, f.lanes) for f in run.findings] == [(0, 3 << 30)]  # one finding for the line, both lanes in it
    for finding in run.findings:
        assert "a[threadIdx.x] < 30" in finding.message
        assert finding.place is not None and finding.place.line == _line("assert")


def test_assertion_that_holds() -> None:
    out = _zeros()
    assert _launch("check", [np.arange(-34, 30, dtype=np.int32), out], block=64).clean
    assert (out == np.arange(-34, 30)).all()
