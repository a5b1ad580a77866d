"""synccheck, which is on in every run: `tests/bad/synchronised/launched`. Each file ends within a loop budget."""

from pathlib import Path

import pytest

import weft
from tests.probes.marked import mark_of
from weft.core.records import Run
from weft.engines.kernel_file import load

FOLDER = Path(__file__).parent.parent / "bad" / "synchronised" / "launched"
FILES = sorted(FOLDER.glob("*.cu"))
MAX_STEPS = 1 << 20
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def run(path: Path, bug: int, *, schedule: int = 0) -> Run:
    gpu = weft.VirtualGPU(threads=1, schedule=schedule)
    return load(path, defines={"BUG": str(bug)}).run(gpu, max_steps=MAX_STEPS).run


@every_file
def test_bad_kernel_is_found(path: Path) -> None:
    mark, findings = mark_of(path), run(path, 1).findings
    assert any(mark.fits(finding, path) for finding in findings), [str(finding) for finding in findings]


@every_file
def test_found_under_every_schedule(path: Path) -> None:
    code = mark_of(path).code
    for schedule in (1, 2):
        assert code in {finding.code for finding in run(path, 1, schedule=schedule).findings}


@every_file
def test_twin_is_clean(path: Path) -> None:
    for schedule in (0, 1, 2):
        assert run(path, 0, schedule=schedule).findings == ()


def test_a_deadlock_names_the_waiting_warps_and_lines() -> None:
    # Warp 0 waits at barrier 1, warp 1 at barrier 2: two places, each with its warp and all its lanes.
    findings = run(FOLDER / "barrier_some_skip.cu", 1).findings
    assert {(f.code, f.warp, f.lanes) for f in findings} == {("S301", 0, 0xFFFFFFFF), ("S301", 1, 0xFFFFFFFF)}
    assert len({f.place.line for f in findings if f.place}) == 2


def test_lanes_of_one_warp_that_wait_at_two_places_are_two_groups() -> None:
    findings = run(FOLDER / "shuffle_waits_for_others.cu", 1).findings
    waiting = {(f.warp, f.lanes) for f in findings if f.code == "S301"}
    assert {(0, 0xFFFF), (0, 0xFFFF0000)} <= waiting
