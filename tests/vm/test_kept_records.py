"""Records that are kept between launches: no launch sees anything of the one before it."""

import mmap
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.probes.racecheck import RaceCheck
from weft.vm import launch_records
from weft.vm.launch import PLAIN, run
from weft.vm.launch_spec import DeviceRun, LaunchSpec
from weft.vm.memory import GLOBAL_BASE, GlobalMemory
from weft.vm.program import Program, compile_program
from weft.vm.runtime.watch import Instrumentation

SOURCE = r"""
#include <cstdio>
extern "C" __global__ void add(const int* a, int* o, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    o[i] = a[i] + by;
}
extern "C" __global__ void print(int* o, int by) { if (threadIdx.x == 0) printf("%d\n", by + o[0]); }
extern "C" __global__ void stop(int* o, int at) {
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    if (threadIdx.x == 40 && at) __trap();
    __syncthreads();
    o[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void diverge(int* o, int n) {
    int v = 0;
    for (int k = 0; k < (threadIdx.x * 7) % 13 + n; ++k) { v += k; if (v % 5 == 2) v += threadIdx.x; }
    o[threadIdx.x] = v;
}
extern "C" __global__ void leftover(int* o, int at) {
    volatile int frame[32];
    o[threadIdx.x] = frame[(at + threadIdx.x) % 32];
    for (int k = 0; k < 32; ++k) frame[k] = threadIdx.x + k;
    o[threadIdx.x] += frame[at] - frame[at];
}
"""


@cache
def _program(entry: str) -> Program:
    return compile_program(weft.compile_cuda(SOURCE, name="kept.cu", arch="sm_89").ptx, entry, arch="sm_89")


def _launch(
    memory: GlobalMemory, entry: str, params: bytes, block: int = 64, watch: Instrumentation = PLAIN
) -> DeviceRun:
    program = _program(entry)
    placed = {variable.name: memory.allocate(variable.size_bytes) for variable in program.plan.globals}
    for variable in program.plan.globals:
        memory.write(placed[variable.name], variable.init.ljust(variable.size_bytes, b"\0"))
    spec = LaunchSpec(entry, (1, 1, 1), (block, 1, 1), params)
    return run(program, spec, memory, globals_at=placed, watch=watch)


def _ints(memory: GlobalMemory, address: int) -> list[int]:
    return memory.read(address, 4 * 64).view(np.int32).tolist()


def test_other_parameters_and_memory_that_moved() -> None:
    memory = GlobalMemory(1 << 16)
    for round_ in range(4):
        a, o = memory.allocate(256), memory.allocate(256)
        memory.write(a, np.arange(64, dtype=np.int32).view(np.uint8))
        assert not _launch(memory, "add", struct.pack("<QQi", a, o, round_)).findings
        assert _ints(memory, o) == [i + round_ for i in range(64)]
        memory.allocate(1 << 17 << round_)  # the arena moves
    other = GlobalMemory(1 << 16)
    a, o = other.allocate(256), other.allocate(256)
    other.write(a, bytes(256))
    _launch(other, "add", struct.pack("<QQi", a, o, 5))
    assert _ints(other, o) == [5] * 64, "another device"


def test_an_access_to_a_freed_buffer_names_it() -> None:
    memory = GlobalMemory()
    a, o = memory.allocate(256, "cudaMalloc #1 at main.cu:20"), memory.allocate(256, "cudaMalloc #2")
    params = struct.pack("<QQi", a, o, 1)
    assert not _launch(memory, "add", params).findings
    memory.free(a)
    (finding,) = _launch(memory, "add", params).findings
    assert finding.code == "M104"
    assert finding.message == "read of freed memory: offset 0 in cudaMalloc #1 at main.cu:20"
    assert finding.lanes == 0xFFFFFFFF


def test_output_and_findings_belong_to_their_launch() -> None:
    memory = GlobalMemory()
    o = memory.allocate(256)
    memory.write(o, bytes(256))
    for number in range(3):
        assert _launch(memory, "print", struct.pack("<Qi", o, number)).printed == f"{number}\n"
    outside = _launch(memory, "print", struct.pack("<Qi", o + 256, 7))
    assert [finding.code for finding in outside.findings] == ["M101"]
    assert _launch(memory, "print", struct.pack("<Qi", o, 9)).findings == ()


def test_a_launch_that_stopped_leaves_nothing() -> None:
    memory = GlobalMemory()
    o = memory.allocate(256)
    for _ in range(2):
        assert [each.code for each in _launch(memory, "stop", struct.pack("<Qi", o, 1)).findings] == ["X401"]
        assert not _launch(memory, "stop", struct.pack("<Qi", o, 0)).findings
        assert _ints(memory, o) == list(range(63, -1, -1))


def test_divergent_warps() -> None:
    memory = GlobalMemory()
    o = memory.allocate(256)
    seen = []
    for n in (3, 3, 5, 3):
        run_ = _launch(memory, "diverge", struct.pack("<Qi", o, n))
        seen.append((_ints(memory, o), run_.instructions, run_.visits))
    assert seen[0] == seen[1] == seen[3] != seen[2]


def test_local_memory_starts_alike() -> None:
    memory = GlobalMemory()
    o = memory.allocate(256)
    seen = []
    for _ in range(3):
        _launch(memory, "leftover", struct.pack("<Qi", o, 3))
        seen.append(_ints(memory, o))
    assert seen[0] == seen[1] == seen[2]


def test_launches_at_the_same_time() -> None:
    def many(by: int) -> bool:
        memory = GlobalMemory(1 << 16)
        a, o = memory.allocate(256), memory.allocate(256)
        memory.write(a, np.arange(64, dtype=np.int32).view(np.uint8))
        for _ in range(50):
            _launch(memory, "add", struct.pack("<QQi", a, o, by))
            if _ints(memory, o) != [i + by for i in range(64)]:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(4)))


def test_how_many_are_kept() -> None:
    memory = GlobalMemory()
    a, o = memory.allocate(4096), memory.allocate(4096)
    params = struct.pack("<QQi", a, o, 1)
    for block in range(32, 32 * 16, 32):
        _launch(memory, "add", params, block)
    kept = launch_records._kept[_program("add")]
    assert len(kept) == launch_records.MOST_KEPT
    assert not _launch(memory, "add", params, watch=RaceCheck()).findings
    assert all(key == PLAIN.key for key, _ in kept), "a checker's memory is not kept"


def test_memory_that_another_process_can_map(tmp_path: Path) -> None:
    size = 1 << 30
    with (tmp_path / "memory").open("wb+") as file:
        file.truncate(size)
        mapping, other = mmap.mmap(file.fileno(), size), mmap.mmap(file.fileno(), size)
    memory = GlobalMemory(arena=np.frombuffer(mapping, np.uint8))
    a, o = memory.allocate(256), memory.allocate(256)
    at = a - GLOBAL_BASE
    other[at : at + 256] = np.arange(64, dtype=np.int32).tobytes()
    assert not _launch(memory, "add", struct.pack("<QQi", a, o, 2)).findings
    at = o - GLOBAL_BASE
    assert np.frombuffer(other[at : at + 256], np.int32).tolist() == [i + 2 for i in range(64)]


@pytest.mark.parametrize("arrays", [1, 2])
def test_through_the_engine(arrays: int) -> None:
    gpu, binary = weft.VirtualGPU(threads=2), weft.compile_cuda(SOURCE, name="kept.cu")
    for by in range(3):
        a, o = np.arange(64 * arrays, dtype=np.int32), np.zeros(64 * arrays, np.int32)
        assert gpu.launch(binary, "add", arrays, 64, [a, o, np.int32(by)]).clean
        assert (o == a + by).all()
