"""Every diagnosis that lists stages as not observed gives the reason."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.attention.shapes import Shape
from weft.cli.diagnose_output import record, text
from weft.core.errors import Unsupported
from weft.diagnose.origins import with_functions
from weft.diagnose.records import Diagnosis
from weft.engines.kernel_file import KernelFile
from weft.mcp.diagnose import _answer
from weft.report.diagnosed import diagnosed_of

from .edited import explained, text_of, write

WHY = "48 keys are too many to record"


def _rows(diagnosis: Diagnosis) -> dict[str, str]:
    return {line[2:15].strip(): line[15:] for line in text(diagnosis) if line.startswith("  ") and line[2] != " "}


def _notes(diagnosis: Diagnosis) -> Mapping[str, str]:
    found = diagnosed_of(diagnosis, lambda place: None)
    assert found is not None
    return {note.name: note.value for note in found.notes}


@pytest.fixture
def scale_twice(tmp_path: Path) -> Path:
    return write(tmp_path, "fa1", "p[r][n] * scale :", "p[r][n] * scale * scale :")


def test_why_a_kernel_was_not_recorded(scale_twice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.diagnose.locate.LARGEST_KEYS", 8)
    found = explained(scale_twice)
    assert found.not_observed == found.case.task.stages and WHY in found.not_observed_because
    stages = ", ".join(found.not_observed)
    assert _rows(found)["not observed"].startswith(f"{stages}: {WHY}")
    assert record(found)["not_observed_because"] == found.not_observed_because
    answer = _answer(found, detail=False)
    assert (answer.not_observed, answer.not_observed_because) == (found.not_observed, found.not_observed_because)
    assert _notes(found)["not observed"].startswith(f"{stages}: {WHY}")


def test_there_is_no_reason_where_every_stage_was_observed(scale_twice: Path) -> None:
    found = explained(scale_twice)
    assert found.not_observed == () and found.not_observed_because == ""
    assert "not observed" not in _rows(found) and "not observed" not in _notes(found)
    assert _answer(found, detail=False).not_observed_because == ""


def test_why_a_kernel_of_the_recipe_was_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise Unsupported("its grid has four dimensions")

    monkeypatch.setattr("weft.diagnose.recipe_stages.locate_recipe", refuse)
    file = tmp_path / "edited.cu"
    file.write_text(text_of("fp8_mma", "s[j][c] = p * P_SCALE;", "s[j][c] = p * 128.0f;"))
    found = explained(file, task="quantised_sdpa", shape=Shape("one_tile", 1, 1, 1, 8, 24, 8))
    assert found.case.recipe is not None and found.not_observed
    assert found.not_observed_because == "unsupported: its grid has four dimensions"


def test_why_stages_of_a_recorded_kernel_were_not_observed(tmp_path: Path) -> None:
    """Scores that are not computed from Q and K: the run is recorded, and shows no stage but O."""
    found = explained(write(tmp_path, "fa1", "p[r][n] * scale :", "0.125f * float(key) :"))
    assert found.case.taps is not None and found.case.lost == ("q", None) and "scores" in found.not_observed
    assert found.not_observed_because == "values could not be followed from q on"


def test_a_kernel_without_an_output(tmp_path: Path) -> None:
    found = explained(write(tmp_path, "fa1", "p[r][n] * scale :", "p[r][n] * scales :"))
    assert found.not_observed_because == f"the kernel produced no output ({found.verdict.status})"


def test_a_task_without_stages_to_compare(tmp_path: Path) -> None:
    """Its output is S: a wrong one is not a missing one."""
    found = explained(write(tmp_path, "qk_dot", "* (STEP * k_scale[kv_head])", "* STEP"), task="qk_dot")
    assert found.not_observed_because == "this workload of qk_dot has no stages to compare with"


def test_why_lines_were_not_traced(scale_twice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = explained(scale_twice)
    assert found.case.functions and "not traced" not in _rows(found) and record(found)["not_traced_because"] == ""

    def refuse(kernel: KernelFile, arrays: Mapping[str, np.ndarray]) -> None:
        raise Unsupported("no text for sm_123")

    monkeypatch.setattr(KernelFile, "binaries", refuse)
    untraced = replace(found, case=with_functions(replace(found.case, functions=())))
    assert _rows(untraced)["not traced"].endswith("no text for sm_123")
    assert record(untraced)["not_traced_because"] == "unsupported: no text for sm_123"
    assert _notes(untraced)["not traced"].endswith("no text for sm_123")
