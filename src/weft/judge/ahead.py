"""Judges workloads in copies of this process, several at once and ahead of their turn; the verdicts are the same.

A workload starts from a fresh device, so that its verdict does not depend on the others. A copy is forked after the
first workload was judged here: it has the modules, the compiled kernel and the candidate, and nothing is sent to it but
workloads.
"""

import os
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from weft.core.errors import WeftError
from weft.tasks.task import Task

from .ask import Ask
from .local_runs import LocalRuns, Seen
from .verdict import Verdict

AHEAD = 12
"""Workloads per process that are started before their turn: enough to do while this process looks for branches."""


@dataclass(frozen=True)
class Elsewhere:
    """A verdict from another process, without the arrays that it was made of."""

    verdict: Verdict


class Answer(NamedTuple):
    """What a copy returns."""

    verdict: Verdict | None
    seen: Seen
    raised: bool = False
    """Whether an error ended it; it is judged again here, where the error can be seen whole."""


class Ahead:
    """Judges in `jobs` copies of this process. Use it as a context: its end ends the copies."""

    def __init__(self, runs: LocalRuns, task: Task, jobs: int) -> None:
        self.runs, self.task, self.jobs = runs, task, jobs
        self._pool: ProcessPoolExecutor | None = None
        self._started: dict[Ask, Future[Answer]] = {}

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, ask: Ask, following: Iterable[Ask]) -> Elsewhere | None:
        """Return the verdict, None for nothing found, and start some of what follows."""
        verdict = self._here(ask) if self._pool is None else self._elsewhere(self._pool, ask, following)
        return Elsewhere(verdict) if verdict is not None else None

    def _here(self, ask: Ask) -> Verdict | None:
        judged = ask(self.runs, self.task)
        if self._pool is None:
            # Forked at the first workload that is sent, before the pool has a thread.
            self._pool = ProcessPoolExecutor(
                self.jobs, get_context("fork"), initializer=_start_copy, initargs=(self.runs, self.task)
            )
        return judged.verdict if judged is not None else None

    def _elsewhere(self, pool: ProcessPoolExecutor, ask: Ask, following: Iterable[Ask]) -> Verdict | None:
        """Wait for an answer. What its runs executed counts from now on: coverage does not depend on the processes."""
        for each in (ask, *islice(following, AHEAD * self.jobs)):
            if each not in self._started:
                self._started[each] = pool.submit(_answer, each)
        try:
            answer = self._started[ask].result()
        except BrokenProcessPool:
            raise WeftError("a process that judged workloads was killed; judge in one process with --jobs 1") from None
        if answer.raised:
            return self._here(ask)
        self.runs.add_seen(answer.seen)
        return answer.verdict


_copied: tuple[LocalRuns, Task]
"""In a copy: where it runs what, as inherited at the fork."""


def _start_copy(runs: LocalRuns, task: Task) -> None:
    global _copied
    # A thread that draws a progress bar may have held the lock of these files when this process was forked.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for the life of the process)
    runs.take_seen()  # of the process that was copied
    runs.engine.threads = 1  # the other cores judge other workloads
    _copied = runs, task


def _answer(ask: Ask) -> Answer:
    runs, task = _copied
    try:
        judged = ask(runs, task)
    except Exception:
        return Answer(None, runs.take_seen(), raised=True)
    return Answer(judged.verdict if judged is not None else None, runs.take_seen())
