"""A one-line mistake is named by the edit that repairs it, where the first wrong value is computed elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.edited import text_of
from weft.attention.shapes import Shape
from weft.cli.main import main
from weft.diagnose.conclusion import cure_of, place_of
from weft.diagnose.diagnose import diagnose
from weft.diagnose.suspects import suspects
from weft.judge.select import Choice, find_candidate
from weft.repair.attempt import Bench
from weft.repair.repair import Found, find_repairs
from weft.repair.templates import Kind
from weft.tasks.task import Workload

BUGS = {
    "threadIdx.x / 33": ("threadIdx.x / 32;", "threadIdx.x / 33;", "33 → 32"),
    "2 / l": ("1.0f / l : 0.0f", "2.0f / l : 0.0f", "2 → 1"),
}


@pytest.mark.parametrize("bug", ["threadIdx.x / 33", pytest.param("2 / l", marks=pytest.mark.sweep)])
def test_the_line_of_the_mistake_is_named_and_the_file_repaired(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong, words = BUGS[bug]
    file = tmp_path / "mine.cu"
    file.write_text(text_of("scalar", right, wrong))
    before = file.read_text()
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if wrong in text)
    candidate, supports = find_candidate(str(file), task=None)
    choice = Choice(shapes=("ragged", "group_3"), masks=("none",), seeds=(0,))
    found = diagnose(candidate, supports, choice, repair=True)
    assert [(repair.place.line, repair.words) for repair in found.repairs] == [(line, words)]
    place = place_of(found)
    assert place is not None and (place.file, place.line) == (str(file), line)
    first = suspects(found)[0]
    assert first.place.line == line and f"`{words}`" in first.evidence
    assert cure_of(found) == f"edit line {line}: {words}"
    assert found.fix is not None and found.fix.workloads >= 2
    old = before.splitlines()[line - 1]
    assert f"-{old}\n+{old.replace(wrong, right)}\n" in found.fix.diff
    assert file.read_text() == before
    monkeypatch.setattr("weft.cli.diagnose.look_inside", lambda *given, **options: found)
    assert main(["diagnose", str(file), "--apply"]) == 1
    printed, said = capsys.readouterr()
    assert f"+{old.replace(wrong, right)}" in printed and f"{file} is changed" in said
    assert file.read_text() == before.replace(wrong, right)


def test_only_the_launch_with_the_edits_is_compiled_again(tmp_path: Path) -> None:
    # The second launch merges the parts of the first.
    right, wrong = "m = fmaxf(m, part_m[", "m = fminf(m, part_m["
    file = tmp_path / "mine.cu"
    file.write_text(text_of("split_k", right, wrong))
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if wrong in text)
    candidate, supports = find_candidate(str(file), task=None)
    workload = Workload(Shape("tiny", 1, 1, 1, 2, 40, 32), "f16", "none", "unit_normal", 0)
    bench = Bench.of(candidate, supports.task, supports.task.draw(workload))
    edits = [edit for edit in bench.edits() if edit.place.line == line and edit.kind is Kind.CALL]
    assert bench.is_mixed and {bench.launches_of[edit.function] for edit in edits} == {(1,)}
    assert "fminf → max" in [edit.words for edit, trial in bench.tried(edits) if trial.passed]
    before = [array.copy() for array in bench.bound.arrays.values()]
    first = [edit for edit in bench.edits() if bench.launches_of[edit.function] == (0,)][:20]
    assert not [edit for edit, trial in bench.tried(first) if trial.passed]
    after = bench.bound.arrays.values()
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("rung", ["scalar", "fa_triton"])
def test_a_right_kernel_and_one_without_a_debug_build_have_no_repair(rung: str) -> None:
    candidate, supports = find_candidate(rung, task=None)
    workload = Workload(Shape("tiny", 1, 1, 1, 4, 8, 32), "f16", "none", "unit_normal", 0)
    problem = supports.task.draw(workload)
    assert find_repairs(candidate, supports.task, [problem], [], lambda told: None) == Found()


def test_a_kernel_of_weft_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "scalar", "--apply"]) == 2
    assert "diagnose a copy" in capsys.readouterr().err
