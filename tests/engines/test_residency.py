"""A kernel whose CTAs wait for each other needs a GPU that holds them all: two GPUs of one architecture differ."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.core.chips import chip
from weft.judge.candidate import Candidate

GRID_SYNC = """
#include <cooperative_groups.h>
// weft: sizes     BLOCKS=70
// weft: workspace mark : i32[BLOCKS]
// weft: out       y : i32[BLOCKS]
// weft: launch    meet(mark, y) grid(BLOCKS) block(1024)
extern "C" __global__ void meet(int* mark, int* y) {
    if (threadIdx.x == 0) mark[blockIdx.x] = blockIdx.x;
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0) y[blockIdx.x] = mark[(blockIdx.x + 1) % gridDim.x];
}
"""
"""70 CTAs of 1024 threads, one per SM: more than an L4 has (58), fewer than an RTX 4090 (128); both are sm_89."""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    file = tmp_path / "meet.cu"
    file.write_text(GRID_SYNC)
    return file


@pytest.mark.parametrize("gpu", ["l4", "sm_89"])
def test_too_many_ctas_for_the_chosen_gpu_are_a_finding(kernel: Path, gpu: str) -> None:
    run, _ = weft.load(kernel, gpu=gpu).run(weft.VirtualGPU(gpu), max_steps=1 << 20)
    (finding,) = run.findings
    assert finding.code == "S302"
    assert "12 CTAs have not started" in finding.message


@pytest.mark.parametrize("gpu", ["rtx4090", "l40s"])
def test_they_pass_on_a_larger_gpu_of_the_same_architecture(kernel: Path, gpu: str) -> None:
    device = weft.VirtualGPU(chip(gpu))
    assert device.arch == "sm_89"
    run, arrays = weft.load(kernel, gpu=gpu).run(device)
    assert run.clean
    assert (arrays["y"] == np.roll(np.arange(70), -1)).all()


def test_as_many_as_the_small_gpu_holds_pass_there(kernel: Path) -> None:
    assert weft.load(kernel).run(weft.VirtualGPU("l4"), sizes={"BLOCKS": 58}).run.clean


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 1),
        (("--gpu", "l4"), 1),
        (("--arch", "sm_89"), 1),
        (("--gpu", "rtx4090"), 0),
        (("--gpu", "l4", "--arch", "sm_89"), 2),
        (("--gpu", "b200"), 2),
    ],
)
def test_the_option_chooses_the_gpu(kernel: Path, options: Sequence[str], code: int) -> None:
    assert main(["run", str(kernel), "--max-steps", str(1 << 20), *options]) == code


def test_a_candidate_is_judged_on_its_gpu() -> None:
    assert Candidate(Path("k.cu"), gpu="h100").arch == "sm_90a"
    assert Candidate(Path("k.cu")).gpu == "l4"


@pytest.mark.parametrize(("gpu", "kib"), [("a100", 163), ("rtx3090", 99), ("l40s", 99), ("h100", 227), ("sm_90a", 227)])
def test_the_shared_memory_limit_of_a_cta_is_that_of_the_chip(gpu: str, kib: int) -> None:
    assert weft.VirtualGPU(gpu).shared_limit_bytes == kib * 1024
