"""Mutants of a kernel before its judge: killed, equivalent, or survivors that are reported."""

from pathlib import Path

import pytest

from weft.attention.shapes import SHAPES
from weft.judge.select import find_candidate
from weft.kernels.ladder import RUNGS
from weft.mutate.equivalent import Build, Original
from weft.mutate.generate import generate
from weft.mutate.records import Mutant
from weft.mutate.trial import MutantTrial, survivors, try_mutant, write_mutant
from weft.tasks.task import Workload

PLAIN = (Workload(SHAPES["one_token"], "f16", "none", "unit_normal", 0),)


@pytest.fixture(scope="module")
def original() -> Original:
    return Original(*find_candidate("scalar", task=None))


def mutant(before: str, after: str) -> Mutant:
    row = RUNGS["scalar"]
    found = generate(row.path.read_text(), row.language, row.file)
    return next(each for each in found if each.before.strip() == before and each.after.strip() == after)


def test_a_wrong_output_is_killed(tmp_path: Path, original: Original) -> None:
    trial = try_mutant(original, mutant("l = l * rescale + p;", "l = l * rescale - p;"), tmp_path, PLAIN)
    assert trial.counts and not trial.survived
    assert trial.killed_by is not None and trial.judged == 1


def test_what_the_workloads_do_not_show_survives(tmp_path: Path, original: Original) -> None:
    """No mask is judged here, so a wrong mask survives; larger workloads show that it is a mistake."""
    unseen = mutant("return max(0, min(SKV, diagonal + 1));", "return max(0, min(SKV, diagonal + 2));")
    trial = try_mutant(original, unseen, tmp_path, PLAIN)
    assert trial.survived
    assert survivors([trial, MutantTrial(unseen, Build.SAME, equivalent=True), MutantTrial(unseen, Build.REFUSED)]) == (
        trial,
    )


def test_a_mutant_finds_headers_next_to_its_original(tmp_path: Path, original: Original) -> None:
    candidate = write_mutant(mutant("l = l * rescale + p;", "l = l * rescale - p;"), original.candidate, tmp_path)
    assert candidate.path.parent == tmp_path
    assert str(original.candidate.path.parent) in candidate.include_dirs
    assert candidate.rung == "scalar"
