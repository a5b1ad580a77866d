"""The corpus of wrong kernels: its lines parse, its right twins pass, and its witnesses show their bugs."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gate_corpus import FOLDER, Wrong, designs, read_wrongs, right_kernels, wrong_kernels
from weft.attention.regimes import REGIMES
from weft.attention.shapes import Shape
from weft.core.status import Status
from weft.judge.judge import Policy, judge
from weft.judge.local_runs import LocalRuns
from weft.judge.select import find_candidate
from weft.judge.verdict import Verdict
from weft.tasks.task import Workload

ENOUGH = 45
CHEAP = ("packed_groups", "split_fixed", "two_pass")
"""Designs that compile and run in a few seconds."""
SMALL = Workload(Shape("small_gqa", 1, 4, 2, 9, 13, 16), "f16", "bottom_right", "unit_normal", 0)


def verdict(path: Path, workload: Workload, wrong: int) -> Verdict:
    candidate, supports = find_candidate(str(path), task="sdpa")
    candidate = replace(candidate, defines={"WRONG": str(wrong)})
    return judge(LocalRuns(candidate), supports.task, workload, Policy(debug_build=False)).verdict


def cheap_bugs() -> list[Wrong]:
    return [wrong for wrong in wrong_kernels() if wrong.design.stem in CHEAP and wrong.witness is not None]


def test_the_corpus_is_large_and_every_line_is_read() -> None:
    wrongs = wrong_kernels()
    assert len(wrongs) >= ENOUGH and len({wrong.id for wrong in wrongs}) == len(wrongs)
    assert {wrong.design for wrong in wrongs} == set(designs()) <= set(right_kernels())
    for wrong in wrongs:
        assert wrong.witness is None or wrong.witness.regime in REGIMES


@pytest.mark.parametrize("path", designs(), ids=lambda path: path.stem)
def test_every_number_switches_something(path: Path) -> None:
    """Bugs count from 1, the file reads each number, and the unmodified file is right."""
    numbers = [wrong.number for wrong in read_wrongs(path)]
    assert numbers == list(range(1, len(numbers) + 1))
    text = path.read_text()
    assert "define  WRONG = 0" in text or "define    WRONG = 0" in text
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("// ", "# ")))
    assert all(f"WRONG == {number}" in code or f"WRONG != {number}" in code for number in numbers)


def test_a_line_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    for line, cause in (
        ("// wrong x name: text", "cannot read"),
        ("// wrong 1 name: text [unknown]", "cannot read"),
        ("// wrong 1 name: text", "no workload that shows it"),
        ("// wrong 1 name: text (seen at B=1 HQ=1 f16)", "cannot read the workload"),
    ):
        path.write_text(line + "\n")
        with pytest.raises(ValueError, match=cause):
            read_wrongs(path)
    path.write_text("// wrong 2 name: text, with (brackets) [cheat]\n")
    assert read_wrongs(path) == [Wrong(path, 2, "name", "text, with (brackets)", "cheat", None)]


@pytest.mark.parametrize("design", CHEAP)
def test_a_right_twin_passes(design: str) -> None:
    assert verdict(FOLDER / "wrong" / f"{design}.cu", SMALL, 0).status is Status.PASSED


@pytest.mark.parametrize("wrong", cheap_bugs(), ids=lambda wrong: wrong.id)
def test_a_witness_shows_the_bug_and_the_right_twin_passes_it(wrong: Wrong) -> None:
    assert wrong.witness is not None
    assert verdict(wrong.design, wrong.witness, wrong.number).status in (Status.INCORRECT_NUMERICAL, Status.UNSAFE)
    assert verdict(wrong.design, wrong.witness, 0).status is Status.PASSED
