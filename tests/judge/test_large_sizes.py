"""Index arithmetic at sizes that nothing here can run: 32-bit overflows are found at their line, and nothing else is."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.judge.large_sizes import LINES, RIGHT_TWINS, WRONG, kernel, line_of
from weft.attention.shapes import SHAPES
from weft.core.records import Run
from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy, judge_all
from weft.judge.large_sizes import CONTEXT, DECODE, PROMPT, large_calls, one_per_build
from weft.judge.local_runs import LocalRuns
from weft.judge.select import find_candidate
from weft.judge.verdict import conclude
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import TASKS
from weft.tasks.task import Workload

SDPA = TASKS["sdpa"]
WORKLOAD = Workload(SHAPES["small"], "f16", "none", "unit_normal", 0)


def looked_at(path: Path) -> Run:
    return LocalRuns(Candidate(path)).check_indices({}, large_calls(SDPA, WORKLOAD))


def written(folder: Path, text: str) -> Path:
    file = folder / "kernel.cu"
    file.write_text(text)
    return file


@pytest.mark.parametrize("name", WRONG)
def test_an_index_that_overflows_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    text, part = WRONG[name]
    (found,) = looked_at(written(tmp_path, text)).findings
    assert found.code == "M106"
    assert line_of(text, part) in {place.line for place in (found.place, found.other) if place}, str(found)


@pytest.mark.parametrize("name", RIGHT_TWINS)
def test_a_right_index_is_not(name: str, tmp_path: Path) -> None:
    assert looked_at(written(tmp_path, RIGHT_TWINS[name])).findings == ()


@pytest.mark.parametrize("rung", [name for name, rung in RUNGS.items() if rung.language == "CUDA"])
def test_no_rung_overflows(rung: str) -> None:
    candidate, supports = find_candidate(rung, task=None)
    workload = Workload(
        SHAPES["small"], supports.dtypes[0], supports.masks[-1], "unit_normal", 0, supports.encodings[0]
    )
    defines = supports.task.draw(workload).defines()
    assert LocalRuns(candidate).check_indices(defines, large_calls(supports.task, workload)).findings == ()
