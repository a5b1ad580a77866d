"""A one-line mistake is named by the edit that repairs it, where the first wrong value is computed elsewhere."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.diagnose.edited import explained, line_of, text_of, write
from weft.attention.shapes import Shape
from weft.cli.main import main
from weft.core.records import Place
from weft.diagnose.conclusion import cure_of, place_of, stage_of
from weft.diagnose.diagnose import diagnose
from weft.diagnose.line_stages import stages_from
from weft.diagnose.records import Diagnosis
from weft.diagnose.suspects import suspects
from weft.judge.select import Choice, find_candidate
from weft.repair.attempt import Bench
from weft.repair.repair import Repair, find_repairs
from weft.repair.source_fix import SourceFix
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


def test_a_missing_barrier_is_added(tmp_path: Path) -> None:
    right = "        load_tile<D, STRIDE>(sKV, k_head, first_key, BLOCK_N, SKV);\n        __syncthreads();\n"
    file = tmp_path / "mine.cu"
    file.write_text(text_of("fa1", right, right.replace("        __syncthreads();\n", "")))
    candidate, supports = find_candidate(str(file), task=None)
    choice = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
    found = diagnose(candidate, supports, choice, repair=True)
    line = line_of(file, "load_tile<D, STRIDE>(sKV, k_head")
    assert found.fix is not None and found.fix.text == text_of("fa1", right, right)
    place = place_of(found)
    assert place is not None and place.line == line
    assert [(each.place.line, each.kind) for each in found.repairs] == [(line, Kind.BARRIER)]


def test_a_loop_without_end_is_repaired_in_the_source(tmp_path: Path) -> None:
    file = tmp_path / "mine.cu"
    file.write_text(text_of("scalar", "offset > 0; offset /= 2", "offset >= 0; offset /= 2"))
    candidate, supports = find_candidate(str(file), task=None)
    choice = Choice(shapes=("small",), regimes=("unit_normal",), masks=("none",), dtypes=("f16",), seeds=(0,))
    found = diagnose(candidate, supports, choice, repair=True)
    assert [cause.code for cause in found.causes] == ["S302"]
    assert found.fix is not None and found.fix.repair.place.line == line_of(file, "offset >= 0; offset /= 2")


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("const size_t q_row =", "q"),
        ("const size_t kv_head =", "k"),  # Q does not depend on it
        ("for (int offset = 16;", "scores"),  # in the sum over a warp: its lines compute the scores
        ("const float m_new =", "m"),
        ("const float rescale =", "p"),
        ("const float inverse =", "o"),
    ],
)
def test_the_stages_that_depend_on_a_line(line: str, first: str, wrong_scalar: Diagnosis) -> None:
    file = wrong_scalar.case.candidate.path
    assert stages_from(wrong_scalar.case, Place(str(file), line_of(file, line)))[0] == first


def test_an_edit_that_repairs_shows_the_stage(wrong_scalar: Diagnosis) -> None:
    """The observed stage stays if it depends on the line of the edit; a kernel's own m may only look wrong."""
    file = wrong_scalar.case.candidate.path
    place = Place(str(file), line_of(file, "const float rescale ="))
    repaired = replace(wrong_scalar, repairs=(Repair(place, "+ → -"),))
    assert stage_of(wrong_scalar) == "m" and stage_of(repaired) == "p"
    of_m = Place(str(file), line_of(file, "const float m_new ="))
    assert stage_of(replace(wrong_scalar, repairs=(Repair(of_m, "max → min"),))) == "m"


def test_the_stage_stays_where_its_values_were_not_seen(tmp_path: Path) -> None:
    """K is read outside its array, so that no value of K is followed: which stages depend on the line is not known."""
    wrong = "static_cast<size_t>(b) * HQ + h / (HQ / HKV);"
    file = write(tmp_path, "scalar", "static_cast<size_t>(b) * HKV + h / (HQ / HKV);", wrong)
    found = explained(file, shape=Shape("groups", 2, 4, 2, 2, 5, 32))
    repaired = replace(found, repairs=(Repair(Place(str(file), line_of(file, wrong)), "another variable"),))
    assert stage_of(found) == stage_of(repaired) == "k"


def test_a_signature_that_has_the_wrong_numbers_comes_before_an_edit_without_a_fix(tmp_path: Path) -> None:
    file = write(tmp_path, "scalar", "l = l * rescale + p;", "l = l + p;")
    found = explained(file)
    line = place_of(found)
    assert line is not None and line.line == line_of(file, "l = l + p;")
    by_chance = Repair(Place(str(file), line_of(file, "const float m_new")), "another variable", Kind.OPERAND)
    unwritten = replace(found, repairs=(by_chance,))
    assert place_of(unwritten) == line and "edit line" not in cure_of(unwritten)
    assert [suspect.place for suspect in suspects(unwritten)][:2] == [line, by_chance.place]
    fix = SourceFix(file, by_chance, "", "", 1)
    assert place_of(replace(unwritten, fix=fix)) == by_chance.place


def test_an_edit_that_corrects_nearly_all_is_written_into_the_source(tmp_path: Path) -> None:
    """The -G build has the line once for each element that a thread stores, and an edit changes one of them."""
    file = write(tmp_path, "pipelined", "o[row * D + d] = T(u * inverse);", "o[row * D + d] = T(truncf(u * inverse));")
    candidate, supports = find_candidate(str(file), task=None)
    found = diagnose(candidate, supports, Choice(shapes=("d48",), masks=("none",), seeds=(0,)), repair=True)
    assert found.fix is not None and found.fix.text == file.read_text().replace("truncf(u * inverse)", "(u * inverse)")


@pytest.fixture(scope="module")
def wrong_scalar(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    """The weights have the wrong sign: O is NaN or wrong, and m, which is right, looks wrong."""
    return explained(write(tmp_path_factory.mktemp("wrong"), "scalar", "p = expf(s - m_new)", "p = expf(s + m_new)"))


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
    told: list[str] = []
    assert list(find_repairs(candidate, supports.task, [problem], [], told.append)) == []
    assert len(told) <= 1  # no further batch is compiled for a kernel that passes


def test_a_kernel_of_weft_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "scalar", "--apply"]) == 2
    assert "diagnose a copy" in capsys.readouterr().err
