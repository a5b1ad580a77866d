"""The -G build of right kernels that use CUDA's own headers is clean; of their wrong twins it is not.

Structures of those headers are copied with members that are never set, and bit-fields are set one by one.
"""

from pathlib import Path

import pytest

from weft.core.records import Run
from weft.engines.kernel_file import load
from weft.judge.local_runs import check_debug_build
from weft.probes import initcheck_review

LINES = """// weft: define  BUG = 0
// weft: in      x : f32[64] = normal
// weft: out     y : f32[64]
"""
GROUPS = """// weft: launch  sums(x, y) grid(1) block(64)
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void sums(const float* x, float* y) {
    cg::thread_block block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    float mine;
    if (!BUG || warp.thread_rank() < 31) mine = x[block.thread_rank()];
    y[block.thread_rank()] = cg::reduce(warp, mine, cg::plus<float>());
}
"""
GRID = """// weft: workspace w : f32[64]
// weft: launch  turn(x, w, y) grid(2) block(32)
#include <cooperative_groups.h>
__global__ void turn(const float* x, float* w, float* y) {
    auto grid = cooperative_groups::this_grid();
    float mine;
    if (!BUG || threadIdx.x) mine = x[grid.thread_rank()];
    w[grid.thread_rank()] = mine;
    grid.sync();
    y[grid.thread_rank()] = w[63 - grid.thread_rank()];
}
"""
BIT_FIELDS = """// weft: launch  choose(x, y) grid(2) block(32)
struct Flags { unsigned char stage : 6; unsigned char ready : 1; unsigned char phase : 1; };
__global__ void choose(const float* x, float* y) {
    const int t = blockIdx.x * 32 + threadIdx.x;
    Flags flags;
    flags.stage = threadIdx.x;
    if (!BUG) flags.ready = x[t] > 0;
    y[t] = flags.ready ? x[t] + flags.stage : 0.0f;
}
"""
PIPELINE = """// weft: launch  staged(x, y) grid(1) block(64)
#include <cuda/pipeline>
__global__ void staged(const float* x, float* y) {
    __shared__ float stage[2][64];
    auto pipe = cuda::make_pipeline();
    pipe.producer_acquire();
    cuda::memcpy_async(&stage[0][threadIdx.x], x + threadIdx.x, sizeof(float), pipe);
    pipe.producer_commit();
    pipe.consumer_wait();
    float sum;
    if (!BUG) sum = 1;
    y[threadIdx.x] = sum + stage[0][threadIdx.x];
    pipe.consumer_release();
}
"""
LOOP = """// weft: launch  sums(x, y) grid(2) block(32)
__global__ void sums(const float* x, float* y) {
    float sum, unused;
    bool skips;
    if (!BUG) sum = 0, skips = false;
    for (int round = 0; round < 100; ++round) {
        if (round == 99 && threadIdx.x > 32) unused += 1;
        if (round > 0 && skips) sum = 0;
        sum = sum * 0 + x[threadIdx.x];
        skips = false;
    }
    y[blockIdx.x * 32 + threadIdx.x] = threadIdx.x > 32 ? unused : sum;
}
"""


def debug_run(folder: Path, text: str, bug: int) -> Run:
    path = folder / "k.cu"
    path.write_text(LINES + text)
    return check_debug_build(load(path, defines={"BUG": str(bug)}))


TEXTS = {"groups": GROUPS, "grid": GRID, "bits": BIT_FIELDS, "pipeline": PIPELINE, "loop": LOOP}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_right_kernel_is_clean_and_its_twin_is_not(tmp_path: Path, text: str) -> None:
    assert debug_run(tmp_path, text, 0).clean
    wrong = debug_run(tmp_path, text, 1)
    (error,) = [finding for finding in wrong.findings if finding.level == "error"]
    assert error.code == "I203" and "its value reaches" in error.message
    assert "k.cu" in {Path(place.file).name for place in (error.place, error.other) if place}


@pytest.mark.parametrize("name", ["grid", "loop"])
def test_where_following_takes_too_long_other_values_of_a_register_decide(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initcheck_review, "MOST_STEPS", 20)
    assert debug_run(tmp_path, TEXTS[name], 0).clean
    (error,) = [finding for finding in debug_run(tmp_path, TEXTS[name], 1).findings if finding.level == "error"]
    assert error.code == "I203" and "the results of the launch are different" in error.message
    assert error.place is not None and Path(error.place.file).name == "k.cu"
