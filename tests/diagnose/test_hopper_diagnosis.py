"""Diagnoses of the zoo's bugs in `hopper_tma`: values are followed through TMA copies and wgmma.

This tests some of them; `benchmarks/zoo.py --part hopper` runs all.
"""

from pathlib import Path

import pytest

from tests.in_turn import one_in
from tests.zoo.bug import Bug
from tests.zoo.diagnosed import diagnose_bug, named
from tests.zoo.hopper import HOPPER, OPEN


@pytest.mark.parametrize("bug", one_in(5, [bug for bug in HOPPER if bug.id not in OPEN]), ids=lambda bug: bug.id)
def test_named(bug: Bug, tmp_path: Path) -> None:
    found = named(bug, diagnose_bug(bug, tmp_path))
    assert not found.healthy
    assert found.stage_right and found.cause_right, found


@pytest.mark.sweep
@pytest.mark.parametrize("bug", [bug for bug in HOPPER if bug.id in OPEN], ids=lambda bug: bug.id)
def test_open_ones_are_reported_wrong(bug: Bug, tmp_path: Path) -> None:
    """They are not named completely, but never reported as right."""
    assert not named(bug, diagnose_bug(bug, tmp_path)).healthy


def test_the_right_kernel_gets_no_diagnosis(tmp_path: Path) -> None:
    bug = next(bug for bug in HOPPER if bug.setup)
    found = diagnose_bug(bug, tmp_path, fixed=True)
    assert found.healthy and not found.causes and not found.signatures
