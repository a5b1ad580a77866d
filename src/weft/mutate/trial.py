"""Tests the judge with mutants of the user's kernel: which small mistakes would it miss?

trials = try_source(*find_candidate("kernel.cu", task=None), folder=scratch)
survivors(trials)
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.core.errors import UsageError
from weft.core.status import Status
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.judge.select import Choice, Supports, workloads
from weft.judge.verdict import Verdict
from weft.tasks.task import Workload

from .equivalent import Build, Original, larger_workloads
from .generate import apply, generate, language_of
from .records import Mutant
from .sample import sample

Progress = Callable[[int, int], None]
"""Called with the number of finished mutants and with their total."""


@dataclass(frozen=True)
class MutantTrial:
    """One mutant and its verdict."""

    mutant: Mutant
    build: Build
    killed_by: Verdict | None = None
    """The first verdict that is not a pass; None if all workloads passed."""
    judged: int = 0
    equivalent: bool = False
    """Whether it is shown to be no mistake: by its PTX, or by its runs on other workloads than the judge's."""
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it counts as a mutant: it compiles, and is not equivalent to its original."""
        return self.build is Build.DIFFERENT and not self.equivalent

    @property
    def survived(self) -> bool:
        return self.counts and self.killed_by is None


def write_mutant(mutant: Mutant, original: Candidate, folder: Path) -> Candidate:
    """Write the mutant's file and return it as a candidate; headers in the original's folder are still found."""
    file = folder / f"{mutant.id}{original.path.suffix}"
    file.write_text(apply(mutant, original.path.read_text()))
    headers = str(original.path.parent.absolute())
    return replace(original, path=file, include_dirs=(*original.include_dirs, headers))


def try_mutant(original: Original, mutant: Mutant, folder: Path, todo: Sequence[Workload]) -> MutantTrial:
    """Compile a mutant, judge it on the workloads until one fails, and if none does check whether it is equivalent."""
    start = time.monotonic()
    candidate = write_mutant(mutant, original.candidate, folder)
    build = original.compare(candidate)
    if build is not Build.DIFFERENT:
        return MutantTrial(mutant, build, equivalent=build is Build.SAME, seconds=time.monotonic() - start)
    judged = 0
    for workload in todo:
        verdict = check(candidate, original.supports.task, workload)
        judged += 1
        # Unsupported code is neither pass nor fail: the next workload is judged.
        if not verdict.passed and verdict.status is not Status.UNSUPPORTED:
            return MutantTrial(mutant, build, verdict, judged, seconds=time.monotonic() - start)
    same = original.same_runs(candidate, larger_workloads(original.supports))
    return MutantTrial(mutant, build, None, judged, same, time.monotonic() - start)


def try_source(
    candidate: Candidate,
    supports: Supports,
    *,
    folder: Path,
    count: int = 48,
    seed: int = 0,
    choice: Choice | None = None,
    progress: Progress = lambda done, count: None,
) -> tuple[MutantTrial, ...]:
    """Judge a balanced sample of the mutants of a kernel file on the chosen workloads of its task.

    Raises UsageError if the file itself does not pass them: then its mutants cannot be distinguished from it.
    """
    source = candidate.path.read_text()
    mutants = generate(source, language_of(candidate.path), candidate.path.name)
    todo = tuple(workloads(supports, choice or Choice(seeds=(0,))))
    if not todo:
        raise UsageError(f"{candidate.path} supports none of these workloads: nothing would be judged")
    _require_right(candidate, supports, todo)
    original, chosen = Original(candidate, supports), sample(mutants, count, seed)
    trials: list[MutantTrial] = []
    for mutant in chosen:
        progress(len(trials), len(chosen))
        trials.append(try_mutant(original, mutant, folder, todo))
    return tuple(trials)


def _require_right(candidate: Candidate, supports: Supports, todo: Sequence[Workload]) -> None:
    for workload in todo:
        verdict = check(candidate, supports.task, workload)
        if not verdict.passed:
            raise UsageError(
                f"{candidate.path} itself does not pass {workload}: {verdict.status}: {verdict.message}. Mutants are "
                "made from a right kernel; `weft diagnose` shows what is wrong with this one"
            )


def survivors(trials: Sequence[MutantTrial]) -> tuple[MutantTrial, ...]:
    """Return the mutants that the judge misses."""
    return tuple(trial for trial in trials if trial.survived)
