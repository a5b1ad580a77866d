"""racecheck and initcheck on kernels that synchronise by mbarriers and between CTAs: no finding if they are correct."""

import numpy as np
import pytest

import weft
from tests.kernels.case import CUDA_FOLDER, Arrays, Case, Cuda
from tests.kernels.test_kernels import run_case
from tests.kernels.waiting_cases import WAITING_CASES
from weft.core.records import Run
from weft.probes.tools import watch_for

SOURCE = (CUDA_FOLDER / "pipelines.cu").read_text()
ROWS, THREADS = 5, 128


def _run(text: str, entry: str, tool: str) -> tuple[Run, Arrays]:
    binary = weft.compile_cuda(text, name="pipelines.cu", entries=(entry,))
    if entry == "exchanged":
        x, threads, rows = np.arange(THREADS, dtype=np.int32), THREADS, ()
    else:
        threads = THREADS if entry == "staged_sum" else 96
        x, rows = np.ones((ROWS, THREADS), np.float32), (np.int32(ROWS),)
    y = np.zeros(THREADS, x.dtype)
    run = weft.VirtualGPU().launch(binary, entry, 1, threads, [x, y, *rows], watch=watch_for([tool]), max_steps=1 << 22)
    return run, {"y": y}


@pytest.mark.parametrize("tool", ["racecheck", "initcheck"])
@pytest.mark.parametrize("entry", ["staged_sum", "produced_sum", "exchanged"])
def test_a_correct_pipeline_has_no_finding(entry: str, tool: str) -> None:
    run, _ = _run(SOURCE, entry, tool)
    assert not run.findings


@pytest.mark.parametrize("entry", ["staged_sum", "produced_sum"])
def test_a_consumer_that_does_not_wait_races_with_the_copies(entry: str) -> None:
    broken = SOURCE.replace("pipe.consumer_wait();", "")
    run, _ = _run(broken, entry, "racecheck")
    assert "R104" in {finding.code for finding in run.findings}


def test_a_barrier_left_out_is_a_race() -> None:
    first, rest = SOURCE.split("    barrier.arrive_and_wait();\n", 1)
    run, _ = _run(first + rest, "exchanged", "racecheck")
    assert "R103" in {finding.code for finding in run.findings}


@pytest.mark.parametrize("left_out, code", [(0, "R102"), (1, "R103")])
def test_a_grid_sync_left_out_is_a_race(left_out: int, code: str) -> None:
    sync = "    grid.sync();\n"
    first, second, rest = (CUDA_FOLDER / "co_resident.cu").read_text().split(sync)
    text = first + sync + second + rest if left_out else first + second + sync + rest
    binary = weft.compile_cuda(text, name="co_resident.cu", entries=["total_by_grid_sync"])
    x, parts, y = np.ones((5, 64), np.int32), np.zeros(5, np.int32), np.zeros((5, 64), np.int32)
    watch = watch_for(["racecheck"])
    run = weft.VirtualGPU().launch(binary, "total_by_grid_sync", 5, 64, [x, parts, y], watch=watch)
    assert code in {finding.code for finding in run.findings if finding.level == "error"}


@pytest.mark.parametrize("tool", ["racecheck", "initcheck"])
@pytest.mark.parametrize(
    "case", [case for case in WAITING_CASES if case.source.file == "co_resident.cu"], ids=lambda case: case.name
)
def test_ctas_that_wait_for_each_other_have_no_finding(case: Case, tool: str) -> None:
    assert isinstance(case.source, Cuda)
    binary = weft.compile_cuda(CUDA_FOLDER / case.source.file, entries=case.source.entries)
    run_case(case, binary, watch=watch_for([tool]))
