"""The positions of a sample, and kernel files that run on them."""

from pathlib import Path

import numpy as np
import pytest

import weft
from weft.core.errors import UsageError
from weft.core.records import Dim3
from weft.engines.sample import CannotSample, CtaSample, choose_sample
from weft.kernels import RUNGS, Rung
from weft.probes import InitCheck, Probes, RaceCheck

SIZES = {"B": 2, "HQ": 4, "HKV": 2, "SQ": 150, "SKV": 45, "D": 16}
POISON = 0xFF


@pytest.mark.parametrize("grid", [(64, 8, 2), (1, 300, 1), (300, 1, 1), (2, 9, 1)])
def test_a_sample_has_the_corners_the_middle_and_the_ragged_end(grid: Dim3) -> None:
    width, height, _ = grid
    chosen = choose_sample(grid, seed=1).positions
    assert len(set(chosen)) == len(chosen) == 12
    assert {(0, 0), (width - 1, height - 1), (width // 2, height // 2)} <= set(chosen)
    assert len({y for x, y in chosen if x == width - 1}) >= min(3, height)
    assert all(x < width and y < height for x, y in chosen)


def test_a_sample_follows_its_seed() -> None:
    one, again, other = (set(choose_sample((64, 8, 1), seed=seed).positions) for seed in (1, 1, 2))
    assert one == again != other
    assert len(one & other) >= 8


def test_a_small_grid_runs_completely() -> None:
    assert set(choose_sample((3, 2, 7)).positions) == {(x, y) for x in range(3) for y in range(2)}
    with pytest.raises(UsageError, match="at least 8"):
        choose_sample((64, 8, 1), count=7)


def unwritten(array: np.ndarray) -> np.ndarray:
    """Return the rows of the last axis in which every byte is still poisoned."""
    whole = array if array.ndim == 4 else array[..., None]
    return (np.ascontiguousarray(whole).view(np.uint8) == POISON).all(-1)


@pytest.mark.parametrize("schedule", [0, 5])
@pytest.mark.parametrize("rung", [rung for rung in RUNGS.values() if rung.rows], ids=lambda rung: rung.name)
def test_a_rung_writes_only_the_rows_of_its_sample(rung: Rung, schedule: int) -> None:
    assert rung.rows
    rows = int(rung.levers[rung.rows][0])
    kernel = weft.load(rung.path)
    grid = kernel.grids(sizes=SIZES)[0]
    assert grid[:2] == (-(-SIZES["SQ"] // rows), SIZES["HQ"])
    sample = CtaSample(((0, 0), (grid[0] - 1, 3), (grid[0] // 2, 2)))
    watch = Probes(InitCheck(), RaceCheck())
    _, whole = kernel.run(weft.VirtualGPU(kernel.gpu), sizes=SIZES)
    run, part = kernel.run(weft.VirtualGPU(kernel.gpu, schedule=schedule), sizes=SIZES, watch=watch, ctas=sample)
    assert run.clean, run.findings

    expected = np.zeros((SIZES["B"], SIZES["HQ"], SIZES["SQ"]), bool)
    for x, head in sample.positions:
        expected[:, head, x * rows : (x + 1) * rows] = True
    for name in ("o", "lse"):
        assert np.array_equal(~unwritten(part[name]), expected)
        assert part[name][expected].tobytes() == whole[name][expected].tobytes()


def test_both_launches_of_split_k_run_their_share() -> None:
    kernel = weft.load(RUNGS["split_k"].path)
    assert kernel.grids(sizes=SIZES) == ((38, 4, 8), (38, 4, 2))
    run, part = kernel.run(weft.VirtualGPU(), sizes=SIZES, ctas=CtaSample(((1, 2),)))
    assert len(run.entries) == 2 and run.counters["ctas_left_out"] == 38 * 4 * 10 - 10
    written = part["part_m"].view(np.uint32) != 0xFFFFFFFF  # [b, head, split, row]
    expected = np.zeros_like(written)
    expected[:, 2, :, 4:8] = True
    assert np.array_equal(written, expected)


TWO_GRIDS = """
// weft: sizes   N=64
// weft: workspace t : f32[N]
// weft: out     y : f32[N]
// weft: launch  first(t) grid(N) block(1)
// weft: launch  second(t, y) grid(N // 32) block(32)
extern "C" __global__ void first(float* t) { t[blockIdx.x] = 1.0f; }
extern "C" __global__ void second(const float* t, float* y) {
    y[blockIdx.x * 32 + threadIdx.x] = t[blockIdx.x * 32 + threadIdx.x];
}
"""
TICKETS = """
// weft: sizes   N=64
// weft: inout   next : i32[1] = zeros
// weft: out     y : i32[N]
// weft: launch  plain(y) grid(N) block(1)
// weft: launch  take(next, y) grid(N) block(1)
extern "C" __global__ void plain(int* y) { y[blockIdx.x] = 7; }
extern "C" __global__ void take(int* next, int* y) { y[atomicAdd(next, 1)] = blockIdx.x; }
"""


@pytest.mark.parametrize(
    ("source", "message"),
    [(TWO_GRIDS, r"\(64, 1, 1\), \(2, 1, 1\)"), (TICKETS, "run all CTAs")],
    ids=["grids", "atomics"],
)
def test_what_cannot_be_sampled_is_refused_before_it_runs(tmp_path: Path, source: str, message: str) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(source)
    kernel = weft.load(path)
    y = np.zeros(64, np.float32 if source is TWO_GRIDS else np.int32)
    with pytest.raises(CannotSample, match=message):
        kernel.run(weft.VirtualGPU(), {"y": y}, ctas=CtaSample(((1, 0),)))
    assert (y.view(np.uint8) == POISON).all()
    assert kernel.run(weft.VirtualGPU(), {"y": y}).run.clean
