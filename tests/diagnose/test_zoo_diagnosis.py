"""Diagnoses of the zoo's bugs name the expected stage, cause and line; right kernels get no diagnosis.

This tests some of them; `benchmarks/zoo.py` runs all.
"""

from pathlib import Path

import pytest

from tests.zoo.diagnosed import diagnose_bug, named
from tests.zoo.transplants import TRANSPLANTS
from tests.zoo.zoo import BUGS, CORRECT
from weft.diagnose.diagnose import diagnose
from weft.judge.select import Choice, find_candidate

ALL = {**BUGS, **{bug.id: bug for bug in TRANSPLANTS}}

IN_EVERY_RUN = ("Z01", "Z10", "Z03-fp8_wmma", "Z06-fa1", "Z06-split_k", "Z15-fa1", "Z15-fp8_wmma")
OTHER_LINE = ("Z04", "Z04-fa1")
"""Of these the table that is overwritten is named, not the constant with which its offset is computed."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sweep] * (name not in IN_EVERY_RUN)) for name in ALL]
)
def test_named(name: str, tmp_path: Path) -> None:
    bug = ALL[name]
    found = named(bug, diagnose_bug(bug, tmp_path))
    assert not found.healthy
    assert found.stage in (bug.stage, *bug.also)
    assert found.cause == bug.cause
    assert name in OTHER_LINE or bug.faulty_line() in (0, found.line)


@pytest.mark.parametrize("name", ["Z05", "Z06", "Z16"])
def test_twins_get_no_diagnosis(name: str, tmp_path: Path) -> None:
    found = diagnose_bug(ALL[name], tmp_path, fixed=True)
    assert found.healthy and not found.causes and not found.signatures


@pytest.mark.parametrize("path", CORRECT, ids=lambda path: path.stem)
def test_right_kernels_that_were_once_reported_wrong(path: Path) -> None:
    found = diagnose(*find_candidate(str(path), task=None), Choice(("small",), ("unit_normal",), ("none",), seeds=(0,)))
    assert found.healthy and not found.causes and not found.signatures
