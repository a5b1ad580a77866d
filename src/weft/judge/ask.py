"""What is judged of a candidate, as values that can be compared and sent to another process."""

from dataclasses import dataclass

from weft.tasks.task import Task, Workload

from .judge import Judged, Policy, judge, judge_debug_build, judge_large_sizes
from .runs import Runs


@dataclass(frozen=True)
class OfWorkload:
    """One workload."""

    workload: Workload
    policy: Policy

    def __call__(self, runs: Runs, task: Task) -> Judged | None:
        return judge(runs, task, self.workload, self.policy)


@dataclass(frozen=True)
class OfLargeSizes:
    """Index arithmetic of a workload's build at sizes that are too large to run. None: nothing found."""

    workload: Workload
    strict: bool

    def __call__(self, runs: Runs, task: Task) -> Judged | None:
        return judge_large_sizes(runs, task, self.workload, strict=self.strict)


@dataclass(frozen=True)
class OfDebugBuild:
    """Uninitialised reads in the -G build. None: nothing found."""

    workload: Workload
    strict: bool

    def __call__(self, runs: Runs, task: Task) -> Judged | None:
        return judge_debug_build(runs, task, self.workload, strict=self.strict)


Ask = OfWorkload | OfLargeSizes | OfDebugBuild
