"""Workloads judged in several processes: the same verdicts, in the same order, with the same coverage."""

import multiprocessing
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from weft.core.errors import WeftError
from weft.core.records import Run
from weft.core.status import Status
from weft.coverage.records import Coverage
from weft.engines.check_indices import Shapes
from weft.judge import judging as judging_module
from weft.judge.ahead import Ahead, Elsewhere
from weft.judge.ask import Ask, OfDebugBuild, OfLargeSizes
from weft.judge.judge import Policy
from weft.judge.judging import LIMITS, Judging, judge_all
from weft.judge.large_sizes import one_per_build
from weft.judge.local_runs import LocalRuns
from weft.judge.select import Choice, find_candidate, followed, plan
from weft.judge.verdict import Verdict, conclude
from weft.kernels.ladder import RUNGS

SCALAR = RUNGS["scalar"].path.read_text()
BODY, INCLUDES, FUNCTIONS = "    constexpr int PER_LANE", "\n#include <assert.h>", "constexpr unsigned ALL_LANES"
MORE_LAUNCHES = "// weft: launch  nothing<{D}>() grid(1) block(32) when(SKV > 64)\n"
NOTHING = "template <int D> __global__ void nothing() {}\n"
"""A kernel that some sizes launch: one kernel of the file then has two binaries."""
CHOICE = Choice(("small", "odd_d"), ("unit_normal", "offsets"), ("none",), ("f16",), seeds=(0, 1))


def judging(path: Path, *, stop: bool = False) -> Judging:
    candidate, supports = find_candidate(str(path), task=None)
    policy = Policy(limits=LIMITS, stop=stop)
    follow = followed(supports, replace(CHOICE, shapes=()))
    return Judging(LocalRuns(candidate), supports.task, plan(supports, CHOICE), policy, follow=follow)


def judged(path: Path, jobs: int, *, stop: bool = False) -> tuple[list[Verdict], Coverage, int]:
    all_of_it = judging(path, stop=stop)
    verdicts = [replace(verdict, seconds=0.0) for verdict in all_of_it.verdicts(jobs)]
    return verdicts, all_of_it.coverage, len(all_of_it.todo)


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have imported it."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture
def kernel(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "kernel.cu"
    text = SCALAR
    for at, more in ((BODY, f"    {request.param}\n"), (INCLUDES, MORE_LAUNCHES), (FUNCTIONS, NOTHING)):
        assert at in text
        text = text.replace(at, more + at, 1)
    path.write_text(text)
    return path


RIGHT = ""
LIMITED = "static_assert(D % 16 == 0);"
WRONG = "if (D == 57) scale *= 1.01f;"
UNSET = "float unset[2]; if (unset[threadIdx.x & 1] > 1) scale *= 2;"
READS_WHAT_NOTHING_WROTE = f"\n#ifdef __CUDACC_DEBUG__\n{UNSET}\n#endif"


@pytest.mark.parametrize(
    ("kernel", "status"),
    [
        (RIGHT, Status.PASSED),
        (LIMITED, Status.PASSED),
        (WRONG, Status.INCORRECT_NUMERICAL),
        (READS_WHAT_NOTHING_WROTE, Status.UNSAFE),
    ],
    indirect=["kernel"],
)
def test_the_number_of_processes_changes_nothing(kernel: Path, status: Status) -> None:
    one, two = judged(kernel, 1), judged(kernel, 2)
    assert two == one
    verdicts, coverage, planned = one
    assert conclude(verdicts, planned).status is status
    assert coverage.lines and bool(coverage.boundaries) == (status is not Status.INCORRECT_NUMERICAL)


@pytest.mark.parametrize("kernel", [WRONG], indirect=True)
def test_what_was_judged_ahead_of_a_failure_is_dropped(kernel: Path) -> None:
    verdicts, _, _ = judged(kernel, 2, stop=True)
    assert [verdict.passed for verdict in verdicts] == [True] * (len(verdicts) - 1) + [False]
    assert verdicts[-1].workload.shape.d == 57 and len(verdicts) < 8
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kernel", [RIGHT], indirect=True)
def test_a_killed_process_is_an_error(kernel: Path) -> None:
    verdicts = judging(kernel).verdicts(2)
    assert [next(verdicts).passed for _ in range(2)] == [True, True]
    children = multiprocessing.active_children()
    assert len(children) == 2
    for child in children:
        child.kill()
    with pytest.raises(WeftError, match="--jobs 1"):
        list(verdicts)


@pytest.mark.parametrize("kernel", [RIGHT], indirect=True)
def test_no_copy_of_a_process_with_torch(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    verdicts = judging(kernel).verdicts(2)
    assert [next(verdicts).passed for _ in range(2)] == [True, True]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kernel", [RIGHT], indirect=True)
def test_what_is_judged_last_starts_before_most_workloads(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not start before every shape, type and mask has passed, and its turn does not change."""
    started: list[Ask] = []

    class InTurn(Ahead):
        def __call__(self, ask: Ask, following: Iterable[Ask]) -> Elsewhere | None:
            started.extend(each for each in (ask, *following) if each not in started)
            judged = ask(self.runs, self.task)
            return Elsewhere(judged.verdict) if judged is not None else None

    monkeypatch.setattr(judging_module, "Ahead", InTurn)
    one = judging(kernel)
    verdicts = [replace(verdict, seconds=0.0) for verdict in one.verdicts(2)]
    assert verdicts == judged(kernel, 1)[0]
    builds = len(one_per_build(one.todo))
    assert len(started) == len(set(started)) == len(one.todo) + builds + 1
    kinds = [type(ask) for ask in started]
    assert kinds.index(OfLargeSizes) + builds == kinds.index(OfDebugBuild) < len(kinds) - 1


def test_large_sizes_of_each_build_are_judged_alone() -> None:
    """So that several processes share them; the verdicts come in the order of the builds."""
    candidate, supports = find_candidate("scalar", task=None)
    todo = plan(supports, Choice(("small",), ("unit_normal",), ("none", "top_left"), ("f16", "f32"), seeds=(0,)))
    seen: list[dict[str, str]] = []

    class Recorded(LocalRuns):
        def check_indices(self, defines: Mapping[str, str], calls: Sequence[Sequence[Shapes]]) -> Run:
            seen.append(dict(defines))
            return super().check_indices(defines, calls)

    policy = Policy(debug_build=False)
    assert all(each.verdict.passed for each in judge_all(Recorded(candidate), supports.task, todo, policy))
    assert seen == [supports.task.draw(work).defines() for work in todo]
