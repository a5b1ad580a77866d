"""malloc and free inside kernels: places, checks, a full heap, repetitions by checkers, on every engine."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.ptx.harness import ENGINES, HEADER, Engine
from weft.core.records import Place, Run
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for
from weft.ptx.parse import parse
from weft.vm.device_heap import GRAIN, LEAST_PLACE, heap_of
from weft.vm.launch_spec import DeviceRun, LaunchSpec
from weft.vm.layout import place_globals
from weft.vm.memory import HEAP_BYTES, GlobalMemory

LINES = """// weft: in      n : i32[2] = zeros
// weft: out     y : i32[64]
// weft: launch  k(n, y) grid(2) block(32)
__global__ void k(const int* n, int* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
"""

RIGHT = {
    "each its own": "int* p = (int*)malloc(64); p[i % 16] = i; y[i] = p[i % 16]; free(p);",
    "passed to another thread": """__shared__ int* p; if (threadIdx.x == 3) p = new int[32];
        __syncthreads(); p[threadIdx.x] = i; __syncthreads(); y[i] = p[31 - threadIdx.x];
        __syncthreads(); if (threadIdx.x == 9) delete[] p;""",
    "one place after the other": """y[i] = 0; for (int j = 0; j < 8; j++) { int* p = (int*)malloc(1 << 20);
        if (p) { p[0] = i; y[i] += p[0] == i; } free(p); }""",
    "never freed": "int* p = (int*)malloc(4); *p = i; y[i] = *p;",
}

WRONG = {
    "past the end": (
        "int* p = (int*)malloc(64); p[15 + n[0]] = 1; y[i] = p[16]; free(p);",
        "M101",
        "exactly at the end",
    ),
    "before the start": ("int* p = (int*)malloc(64); y[i] = p[-1];", "M101", "4 bytes before the start of malloc"),
    "after its end": ("int* p = (int*)malloc(64); p[0] = i; free(p); y[i] = p[n[0]];", "M104", "of freed memory"),
    "freed twice": ("int* p = (int*)malloc(64); free(p); y[i] = 0; free(p + n[0]);", "M108", "second free of malloc"),
    "freed inside": ("int* p = (int*)malloc(64); y[i] = 0; free(p + 1);", "M108", "offset 4 in malloc"),
    "a buffer freed": ("y[i] = 0; free(y + n[0]);", "M108", "did not return: y"),
    "a null pointer used": ("int* p = (int*)malloc(1 << 30); y[i] = 0; p[0] = 1;", "M104", "null pointer"),
    "never written": ("int* p = (int*)malloc(64); y[i] = p[3 + n[0]]; free(p);", "I202", "malloc"),
    "no order between warps": (
        """__shared__ int* p; if (threadIdx.x == 0) p = new int[32]; __syncthreads();
        p[0] = i; __syncthreads(); y[i] = p[0]; __syncthreads(); if (threadIdx.x == 0) delete[] p;""",
        "R101",
        "malloc",
    ),
}


def run(tmp_path: Path, body: str, tool: str = "all", **gpu: int) -> Run:
    file = tmp_path / "kernel.cu"
    file.write_text(LINES + body + "\n}\n")
    return load(file).run(VirtualGPU(**gpu), watch=watch_for([tool])).run


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("threads", [1, 2])
def test_right_kernels_have_no_finding(tmp_path: Path, name: str, threads: int) -> None:
    assert not run(tmp_path, RIGHT[name], threads=threads).findings


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_found_with_block_and_line(tmp_path: Path, name: str) -> None:
    body, code, words = WRONG[name]
    findings = run(tmp_path, body).findings
    assert {finding.code for finding in findings} == {code}
    assert words in findings[0].message, findings[0].message
    place = findings[0].place
    assert place is not None and Path(place.file).name == "kernel.cu" and place.line >= 6
    if re.search(r"malloc \d", findings[0].message):
        assert "kernel.cu:6" in findings[0].message


def test_addresses_are_the_same_in_each_run_and_with_any_number_of_threads(tmp_path: Path) -> None:
    body = "void* p = malloc(i + 1); y[i] = (int)(long long)p; if (i % 3 == 0) free(p);"
    file = tmp_path / "kernel.cu"
    file.write_text(LINES + body + "\n}\n")
    outputs = [load(file).run(VirtualGPU(threads=threads)).arrays["y"] for threads in (1, 2, 2)]
    assert len(np.unique(outputs[0])) == 64 and not (outputs[0] % GRAIN).any()
    for other in outputs[1:]:
        np.testing.assert_array_equal(other, outputs[0])


CALLS = """
.extern .func (.param .b64 r) malloc (.param .b64 s);
.extern .func free (.param .b64 p);
.extern .func (.param .b64 r) __cuda_syscall_aligned_malloc (.param .b64 s, .param .b64 a);
.visible .entry k(.param .u64 out, .param .u64 bytes, .param .u64 align)
{
  .reg .b64 %rd<8>; .reg .b32 %r<2>; .reg .pred %p;
  ld.param.u64 %rd0, [out]; ld.param.u64 %rd1, [bytes]; ld.param.u64 %rd6, [align];
  mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 24; add.u64 %rd3, %rd0, %rd2;
  { .param .b64 p0; .param .b64 r0; st.param.b64 [p0], %rd1; call.uni (r0), malloc, (p0); ld.param.b64 %rd4, [r0]; }
  st.global.u64 [%rd3], %rd4;
  { .param .b64 p0; .param .b64 p1; .param .b64 r0; st.param.b64 [p0], 8; st.param.b64 [p1], %rd6;
    call.uni (r0), __cuda_syscall_aligned_malloc, (p0, p1); ld.param.b64 %rd5, [r0]; }
  st.global.u64 [%rd3+8], %rd5;
  setp.ne.u64 %p, %rd5, 0;
  @%p st.u64 [%rd5], 77;
  @%p ld.u64 %rd7, [%rd5];
  @%p st.global.u64 [%rd3+16], %rd7;
  { .param .b64 p0; st.param.b64 [p0], %rd4; call.uni free, (p0); }
  ret;
}
"""


def call(engine: str, memory: GlobalMemory, out: int, size_bytes: int, align: int) -> DeviceRun:
    module = parse(HEADER + CALLS)
    spec = LaunchSpec("k", (1, 1, 1), (32, 1, 1), struct.pack("<3Q", out, size_bytes, align))
    return Engine(engine, module).run(spec, memory, place_globals(module, memory))


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_return_blocks_or_null(engine: str) -> None:
    memory = GlobalMemory()
    out = memory.allocate(24 * 32)
    memory.write(out, bytes(24 * 32))
    assert not call(engine, memory, out, 100, 1024).findings
    got = memory.read(out, 24 * 32).view(np.uint64).reshape(32, 3)
    assert len(np.unique(got[:, :2])) == 64 and not (got[:, 1] % 1024).any() and (got[:, 2] == 77).all()
    assert len(heap_of(memory).live) == 32, "the aligned blocks live past the launch, the others are freed"
    memory.write(out, bytes(24 * 32))
    assert not call(engine, memory, out, HEAP_BYTES + 1, 3).findings
    got = memory.read(out, 24 * 32).view(np.uint64).reshape(32, 3)
    assert not got.any(), "more than the heap, and an alignment that is no power of two"


def test_a_full_heap_returns_null_until_something_is_freed() -> None:
    memory = GlobalMemory()
    memory.heap_bytes = 1 << 16
    heap = heap_of(memory)
    blocks = [heap.allocate(1 << 14, None) for _ in range(5)]
    assert all(blocks[:4]) and not blocks[4] and heap.taken_bytes == 1 << 16
    assert heap.free(blocks[1], None) == ""
    again = heap.allocate(1 << 14, None)
    assert again and again not in blocks, "a place is not used again as long as there are others"


def test_places_are_used_again_when_the_window_is_full() -> None:
    memory = GlobalMemory()
    heap = heap_of(memory)
    rounds = (heap.high - heap.low) // LEAST_PLACE + 10
    seen = set()
    for _ in range(rounds):
        address = heap.allocate(1, Place("k.cu", 3))
        assert heap.free(address, None) == ""
        seen.add(address)
    assert len(seen) < rounds and heap.reused and not heap.live


def test_an_earlier_state_comes_back() -> None:
    memory = GlobalMemory()
    memory.keep_written()
    heap = heap_of(memory)
    stays = heap.allocate(40, None)
    memory.mark_written(stays, 40)
    before = heap.state()
    more = heap.allocate(8, None)
    heap.free(stays, None)
    now = heap.state()
    heap.set(before)
    assert memory.owner(stays) is not None and memory.owner(more) is None
    assert heap.allocate(8, None) == more, "a repetition gets the same addresses"
    heap.set(now)
    assert memory.owner(stays) is None and memory.owner(more) is not None
    gone = memory.freed_owner(stays + 39)
    assert gone is not None and gone.name == "malloc 1"


def test_a_closed_heap_gives_its_memory_back() -> None:
    memory = GlobalMemory(1 << 20)
    used, buffers = memory.used, len(memory.allocations)
    heap = heap_of(memory)
    heap.allocate(100, None)
    heap.close()
    assert memory.heap is None and memory.used == used and len(memory.allocations) == buffers


def test_releasing_a_launchs_buffers_keeps_the_heap() -> None:
    memory = GlobalMemory()
    mark = memory.mark()
    argument = memory.allocate(10)
    block = heap_of(memory).allocate(10, None)
    memory.release(mark)
    assert memory.owner(argument) is None and memory.owner(block) is not None
