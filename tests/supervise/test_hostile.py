"""A few of the hostile programs of `benchmarks/fault_hostile.py`, which runs all of them, often."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.attention.shapes import SHAPES
from weft.core.records import Run
from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.runs import Ran
from weft.supervise import work as work_module
from weft.supervise.screen import Rejected
from weft.supervise.supervisor import Supervisor
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

BENCHMARKS = str(Path(__file__).parents[2] / "benchmarks")
CHOSEN = (
    "right only once", "clock", "one seed only", "impossible grid", "device hog", "formula bomb", "incbin", "fork bomb",
    "PTX hog", "broken PTX", "template bomb", "deep recursion", "include in itself",
)  # fmt: skip
WORKLOAD = Workload(SHAPES["split_4"], "f16", "none", "unit_normal", 0)


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    sys.path.insert(0, BENCHMARKS)
    try:
        module = importlib.import_module("hostile_programs")
    finally:
        sys.path.remove(BENCHMARKS)
    return {program.name: program for program in module.PROGRAMS}


@pytest.mark.usefixtures("no_strays")
@pytest.mark.parametrize("name", CHOSEN)
def test_a_hostile_program_gets_its_status(supervisor: Supervisor, programs: dict[str, Any], name: str) -> None:
    program, limits = programs[name], supervisor.limits
    supervisor.limits = program.limits
    try:
        found = supervisor.evaluate(program.request)
    finally:
        supervisor.limits = limits
    assert found.status is program.status, found.message
    assert found.isolation == 3


def test_there_are_enough_programs_and_all_texts_can_be_generated(programs: dict[str, Any]) -> None:
    assert len(programs) >= 50
    assert {program.status for program in programs.values()} == set(Status) - {
        Status.PASSED,
        Status.CRASHED,
        Status.LOST,
    }
    assert len({program.request.source.digest for program in programs.values()}) == len(programs) - 1  # two loops


@pytest.mark.parametrize("name", ["right only once", "clock"])
def test_weft_check_finds_them_too(programs: dict[str, Any], tmp_path: Path, name: str) -> None:
    """State that a device keeps between calls, or the time of its clock, is not a function of the inputs."""
    path = tmp_path / "kernel.cu"
    path.write_text(programs[name].request.source.text)
    assert check(Candidate(path), TASKS["sdpa"], WORKLOAD).status is Status.NONDETERMINISTIC


def test_too_large_results_do_not_reach_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "MOST_OUTPUT_BYTES", 100)
    run = Run((), (), "", 0, "", "")
    assert set(work_module._answer(Ran(run, {"o": np.zeros(25, np.float32)}, {})).arrays) == {"o"}
    with pytest.raises(Rejected, match="104 bytes"):
        work_module._answer(Ran(run, {"o": np.zeros(26, np.float32)}, {}))
