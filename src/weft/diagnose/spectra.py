"""Finds lines that ran in the failing workload and in none of those that passed: of masks, partial tiles, merges."""

from collections.abc import Sequence

from weft.core.errors import WeftError
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy, judge
from weft.judge.local_runs import LocalRuns
from weft.tasks.task import Task, Workload

MOST_PASSED = 4
"""Workloads that passed are run again: the last ones, which are most like the failing one."""


def lines_of_failure(
    candidate: Candidate, task: Task, failing: Workload, passed: Sequence[Workload]
) -> tuple[int, ...]:
    """Return the lines that ran in the failing workload and in none of those that passed, in their order; empty if
    nothing passed.
    """
    if not passed:
        return ()
    try:
        ran, others = (_ran(candidate, task, chosen) for chosen in ((failing,), passed[-MOST_PASSED:]))
    except WeftError:  # without a run no line is more suspicious than another
        return ()
    return tuple(sorted(ran - others)) if others else ()


def _ran(candidate: Candidate, task: Task, workloads: Sequence[Workload]) -> set[int]:
    runs = LocalRuns(candidate)
    for workload in workloads:
        judge(runs, task, workload, Policy(()))
    return {line.number for line in runs.coverage().lines if line.runs and line.file == str(candidate.path)}
