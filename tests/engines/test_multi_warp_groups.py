"""Cooperative groups of 2 to 16 warps, with CUDA's own header: right numbers on both paths, and silent checkers.

Such a group has no barrier of the hardware. Its warps set bits of a word in the shared memory that the system reserves,
and poll it; one slot per warp passes values on (cooperative_groups/details/sync.h).
"""

import struct
from functools import cache

import numpy as np
import pytest

import weft
from tests.ptx.harness import Engine
from weft.core.finding_codes import Severity
from weft.core.records import Binary, Run
from weft.probes import race_review
from weft.probes.tools import watch_for
from weft.ptx.parse import parse
from weft.vm.launch_spec import LaunchSpec
from weft.vm.layout import place_globals
from weft.vm.memory import GlobalMemory

COLLECTIVES = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

template <class Tile> __device__ void collectives(const Tile& tile, const int* x, int* y, float* z) {
    const int n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i], size = tile.size();
    y[0 * n + i] = cg::reduce(tile, v, cg::plus<int>());
    y[1 * n + i] = cg::reduce(tile, v, cg::less<int>());
    y[2 * n + i] = cg::inclusive_scan(tile, v);
    y[3 * n + i] = cg::exclusive_scan(tile, v);
    y[4 * n + i] = cg::inclusive_scan(tile, v, cg::greater<int>());
    y[5 * n + i] = tile.shfl(v, size - 5);
    y[6 * n + i] = tile.shfl(v, 3);
    y[7 * n + i] = tile.any(v > 97);
    y[8 * n + i] = tile.all(v > 2);
    tile.sync();
    y[9 * n + i] = tile.meta_group_rank() * 10000 + tile.meta_group_size() * 1000 + tile.thread_rank();
    z[i] = cg::reduce(tile, 0.25f * v, cg::plus<float>());
}
template <int SIZE> __global__ void reserved(const int* x, int* y, float* z) {
    collectives(cg::tiled_partition<SIZE>(cg::this_thread_block()), x, y, z);
}
template <int SIZE> __global__ void given(const int* x, int* y, float* z) {
    __shared__ cg::block_tile_memory<1024> memory;
    collectives(cg::tiled_partition<SIZE>(cg::this_thread_block(memory)), x, y, z);
}

"""
PLANTED = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

// Each row of a tile's data is shifted by one, through shared memory: two phases, each between two syncs of the tile.
template <int SIZE, int MISSING> __global__ void shift(const int* x, int* y) {
    __shared__ int s[512];
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    const int t = threadIdx.x, next = t / SIZE * SIZE + (t + 32) % SIZE;
    s[t] = x[t];
    if (MISSING != 1) tile.sync();
    const int first = s[next];
    if (MISSING != 2) tile.sync();
    s[t] = first;
    tile.sync();
    y[t] = s[next];
}
// The sum of a tile, then its smallest element, at the same place: the group's own collective orders the two phases.
template <int SIZE, bool REDUCES> __global__ void phases(const int* x, int* y) {
    __shared__ int s[8];
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    const int v = x[threadIdx.x], rank = tile.thread_rank(), which = tile.meta_group_rank();
    const int sum = cg::reduce(tile, v, cg::plus<int>());
    if (rank == 0) s[which] = sum;
    const int least = REDUCES ? cg::reduce(tile, v, cg::less<int>()) : v;
    if (rank == SIZE - 1) s[which] = sum + least;
    tile.sync();
    y[threadIdx.x] = s[which];
}
// Wrong: a group orders its own threads, and these are two groups.
template <int SIZE> __global__ void neighbours(const int* x, int* y) {
    __shared__ int s[512];
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    y[threadIdx.x] = s[(threadIdx.x + SIZE) % blockDim.x];
}
// Wrong: only one warp in two has stored what the tile reads.
template <int SIZE> __global__ void half_set(const int* x, int* y) {
    __shared__ int s[512];
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    if (threadIdx.x / 32 % 2 == 0) s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    y[threadIdx.x] = s[threadIdx.x];
}
// Wrong: the warps of a tile's second half never arrive.
template <int SIZE> __global__ void half_there(const int* x, int* y) {
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    if (tile.thread_rank() < SIZE / 2) tile.sync();
    y[threadIdx.x] = x[threadIdx.x];
}
// Wrong: writes past the end of the only shared array.
template <int SIZE> __global__ void past_the_end(const int* x, int* y) {
    __shared__ int s[512];
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    s[(threadIdx.x & ~3) + 4] = x[threadIdx.x & ~3];
    tile.sync();
    y[threadIdx.x] = s[threadIdx.x & ~3];
}
// Data of a tile that passes through global memory.
template <int SIZE, bool SYNC> __global__ void through_global(const int* x, int* y) {
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    y[threadIdx.x] = x[threadIdx.x];
    if (SYNC) tile.sync();
    const int other = y[threadIdx.x ^ (SIZE / 2)];
    tile.sync();
    y[threadIdx.x] = other;
}
"""
SIZES = (64, 128, 256, 512)
SCHEDULES = (0, 1, 2)
ROWS = 10
WRONG = ("shift<{}, 0>", "shift<{}, 1>", "shift<{}, 2>", "phases<{}, true>", "phases<{}, false>", "neighbours<{}>",
         "half_set<{}>", "half_there<{}>", "past_the_end<{}>", "through_global<{}, true>",
         "through_global<{}, false>")  # fmt: skip


@cache
def binary(kernel: str, size: int) -> Binary:
    """Compile a kernel of COLLECTIVES, or all of PLANTED: including the header takes most of the time."""
    if kernel in WRONG:
        entries = [entry.format(size) for entry in WRONG if size == 64 or entry.startswith(("shift", "phases"))]
        return weft.compile_cuda(PLANTED, name="planted.cu", entries=entries)
    return weft.compile_cuda(COLLECTIVES, name="groups.cu", entries=[kernel.format(size)])


def data(threads: int) -> np.ndarray:
    return np.random.default_rng(threads).integers(0, 100, threads).astype(np.int32)


def expected(x: np.ndarray, size: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    tiles = x.reshape(-1, size)
    count = block // size
    number = np.arange(len(tiles))[:, None] % count
    one = np.ones_like(tiles)
    rows = [
        tiles.sum(axis=1, keepdims=True) * one,
        tiles.min(axis=1, keepdims=True) * one,
        tiles.cumsum(axis=1),
        tiles.cumsum(axis=1) - tiles,
        np.maximum.accumulate(tiles, axis=1),
        tiles[:, size - 5 : size - 4] * one,
        tiles[:, 3:4] * one,
        (tiles > 97).any(axis=1, keepdims=True) * one,
        (tiles > 2).all(axis=1, keepdims=True) * one,
        10000 * number + 1000 * count + np.arange(size),
    ]
    return np.stack([row.reshape(-1) for row in rows]), 0.25 * rows[0].reshape(-1)  # quarters of integers are exact


def launch(
    kernel: str, size: int, args: list[np.ndarray], *, grid: int = 1, block: int = 512, tools: str = "all", **more: int
) -> Run:
    gpu, watch = weft.VirtualGPU(schedule=more.pop("schedule", 0)), watch_for(filter(None, [tools]))
    names = ["x", "y", "z"][: len(args)]
    return gpu.launch(binary(kernel, size), kernel.format(size), grid, block, args, names=names, watch=watch, **more)


def check(kernel: str, size: int, *, block: int, grid: int = 1, schedule: int = 0) -> None:
    """Assert that all collectives are right, with all checkers on and silent."""
    x = data(block * grid)
    y, z = np.zeros((ROWS, len(x)), np.int32), np.zeros(len(x), np.float32)
    run = launch(kernel, size, [x, y, z], grid=grid, block=block, schedule=schedule)
    assert run.findings == (), "\n".join(map(str, run.findings))
    rows, sums = expected(x, size, block)
    assert np.array_equal(y, rows) and np.array_equal(z, sums)


@pytest.mark.parametrize(("size", "block", "schedule"), [(64, 192, 0), (128, 256, 1), (256, 512, 2), (512, 512, 1)])
def test_every_collective_is_right_and_the_checkers_are_silent(size: int, block: int, schedule: int) -> None:
    check("reserved<{}>", size, block=block, schedule=schedule)


def test_the_kernel_gives_the_memory() -> None:
    check("given<{}>", 128, block=128)


def test_the_largest_block_and_several_ctas() -> None:
    check("reserved<{}>", 512, block=1024)
    check("reserved<{}>", 64, block=64, grid=3)


@pytest.mark.parametrize("size", SIZES)
def test_the_reference_agrees(size: int) -> None:
    compiled = binary("reserved<{}>", size)
    module, memory, x = parse(compiled.ptx), GlobalMemory(1 << 20), data(size)
    globals_at = place_globals(module, memory)
    arrays = [memory.allocate(4 * rows * size) for rows in (1, ROWS, 1)]
    memory.write(arrays[0], x.view(np.uint8))
    for address, rows in zip(arrays[1:], (ROWS, 1), strict=True):
        memory.write(address, bytes(4 * rows * size))
    entry = compiled.entries[f"reserved<{size}>"]
    spec = LaunchSpec(entry, (1, 1, 1), (size, 1, 1), struct.pack("<QQQ", *arrays))
    outcome = Engine("reference", module).run(spec, memory, globals_at)
    assert outcome.findings == ()
    rows, sums = expected(x, size, size)
    assert np.array_equal(memory.read(arrays[1], 4 * ROWS * size).view(np.int32).reshape(ROWS, size), rows)
    assert np.array_equal(memory.read(arrays[2], 4 * size).view(np.float32), sums)


# -- planted bugs ------------------------------------------------------------------------------------------------------


def found(kernel: str, size: int = 64, *, tools: str = "racecheck", **options: int) -> set[tuple[str, str]]:
    """Return code and array of the findings; all are errors. NVRTC mangles the names of shared arrays."""
    run = launch(kernel, size, [data(512), np.zeros(512, np.int32)], tools=tools, **options)
    assert all(finding.level is Severity.ERROR for finding in run.findings)
    return {(finding.code, finding.name[-1:]) for finding in run.findings}


@pytest.mark.parametrize("size", (64, 256))
def test_a_sync_of_the_group_orders_shared_memory(size: int) -> None:
    assert found("shift<{}, 0>", size, tools="all") == set()
    assert found("shift<{}, 1>", size) == {("R102", "s"), ("R103", "s")}
    assert found("shift<{}, 2>", size) == {("R102", "s"), ("R103", "s")}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_missing_sync_between_two_phases_is_found(schedule: int) -> None:
    for size in (64, 256):
        assert found("phases<{}, true>", size, tools="all", schedule=schedule) == set()
        assert found("phases<{}, false>", size, schedule=schedule) == {("R101", "s")}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_group_does_not_order_another(schedule: int) -> None:
    assert found("neighbours<{}>", schedule=schedule) == {("R102", "s"), ("R103", "s")}


def test_warps_that_wait_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warp polls thousands of times; a log that is too short would be a warning."""
    monkeypatch.setattr(race_review, "FIRST_LOG", 1 << 11)
    monkeypatch.setattr(race_review, "LOG_AT_MOST", 1 << 11)
    assert found("phases<{}, true>", 256) == set()


def test_global_memory_is_ordered_too() -> None:
    assert found("through_global<{}, true>", tools="all") == set()
    assert found("through_global<{}, false>") == {("R102", "y"), ("R103", "y")}


def test_an_uninitialised_element_is_found() -> None:
    assert found("half_set<{}>", tools="all") == {("I201", "s")}


def test_a_group_that_waits_for_absent_warps_hangs() -> None:
    assert {code for code, _ in found("half_there<{}>", tools="", max_steps=1 << 14)} == {"S302"}


def test_the_reserved_memory_is_out_of_bounds_for_the_kernel() -> None:
    assert found("past_the_end<{}>", tools="") == {("M101", "s")}
