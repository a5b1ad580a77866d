"""Which lines ran and which branches went both ways, from runs on the virtual GPU."""

from pathlib import Path

import numpy as np
import pytest

from weft.core.records import Run
from weft.coverage.code_map import map_of, stored_map
from weft.coverage.gather import Gathered, cover
from weft.coverage.records import Boundary, Coverage
from weft.coverage.text import lcov, listing, merge, summary
from weft.engines.kernel_file import load
from weft.engines.virtual import VirtualGPU

KERNEL = """// weft: sizes  N=8
// weft: in     x : f32[N] = normal
// weft: out    y : f32[N]
// weft: launch f(x, y, N) grid(1) block(64)
__global__ void f(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    float sum = x[i];
    if (n > 20) {
        for (int k = 0; k < n; ++k)
            sum += __shfl_sync(1u, x[k], 0);
    }
    y[i] = sum;
}
"""


def run_sizes(path: Path, *sizes: int) -> Coverage:
    kernel, gpu, gathered = load(path), VirtualGPU(), Gathered()
    for size in sizes:
        run: Run = kernel.run(gpu, {"x": np.ones(size, np.float32)}).run
        assert len(run.visits) == 1 and run.visits[0].blocks[0] == 2, "two warps came to the first block"
        gathered.add(run.visits)
    maps = {key: map_of(gpu.program_of(*key).source.passes) for key in gathered.blocks}
    assert all(stored_map(gpu.program_of(*key).source) == found for key, found in maps.items() for _ in range(2))
    return cover(gathered, maps, {str(path): path.name})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(KERNEL)
    return path


def test_code_for_other_sizes_was_never_executed(file: Path) -> None:
    found = run_sizes(file, 8)
    never = {line.number for line in found.never}
    assert 11 in never and never <= {10, 11}
    assert {line.number for line in found.lines if line.runs} >= {6, 7, 8, 13}
    assert 9 in {branch.line for branch in found.one_way}
    assert 7 not in {branch.line for branch in found.one_way}, "lanes beyond n left, the others did not"


def test_another_size_completes_it(file: Path) -> None:
    found = run_sizes(file, 8, 1)
    assert {line.number for line in found.never} >= {11}, "neither size is beyond 20"


def test_full_warps_never_take_the_exit_branch(tmp_path: Path) -> None:
    """All 64 threads have an element: no thread ever returns at `if (i >= n)`."""
    path = tmp_path / "kernel.cu"
    path.write_text(KERNEL.replace("__shfl_sync(1u, x[k], 0)", "x[k]"))
    assert 7 in {branch.line for branch in run_sizes(path, 64).one_way}
    both = run_sizes(path, 64, 40, 3)
    assert not both.never
    assert not {7, 9} & {branch.line for branch in both.one_way}


def test_a_loop_without_a_second_iteration_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(
        KERNEL.replace("n > 20", "n > 0")
        .replace("k < n; ++k", "k < n; k += 16")
        .replace("__shfl_sync(1u, x[k], 0)", "x[k]")
    )
    once = {branch.line for branch in run_sizes(path, 9).one_way if branch.loops}
    assert once == {10}
    assert not {branch.line for branch in run_sizes(path, 9, 33).one_way if branch.loops}


def test_it_survives_a_round_trip_as_plain_data(file: Path) -> None:
    found = merge([run_sizes(file, 8), Coverage(boundaries=(Boundary("SKV", 21, "kernel.cu", 9, "too long"),))])
    assert Coverage.from_record(found.to_record()) == found


def test_summary_listing_and_lcov(file: Path) -> None:
    found = run_sizes(file, 8)
    lines = summary(
        merge([found, Coverage(boundaries=(Boundary("N", 21, "kernel.cu", 9), Boundary("B", 7, why_not="no")))])
    )
    assert any(line.startswith("never executed: kernel.cu:1") for line in lines)
    assert "extra sizes run, at which the kernel's path changes: N 21" in lines
    assert "not run: B = 7 (no)" in lines
    text = list(listing(found, "kernel.cu", KERNEL))
    assert text[10].split()[:2] == ["never", "11"]
    assert "1 way" in text[8]
    trace = lcov(found).splitlines()
    assert "DA:11,0" in trace and trace[-1] == "end_of_record"
    assert any(row.startswith("BRDA:9,0,1,0") for row in trace)


def test_an_engine_that_does_not_count_gives_no_coverage() -> None:
    assert summary(Coverage()) == [] and lcov(Coverage()) == ""
