"""Compiles texts of a source one by one, and returns those with which the failing workloads pass."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from weft.core.errors import WeftError
from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.tasks.task import Task, Workload

from .repair import Progress, Repair
from .source_edits import by_suspicion, source_edits

MOST_SECONDS = 20.0
"""CPU time after which no further text is tested."""
MOST_TEXTS = 40
FAST: tuple[str, ...] = ()
"""Optional checkers while texts are tested: the choice is judged with all of them afterwards."""


@dataclass(frozen=True)
class Copy:
    """A copy of a candidate's file, whose text is changed."""

    candidate: Candidate
    path: Path

    def with_text(self, text: str) -> Candidate:
        """Write the text; return it as a new value, as what a candidate has read of its file is kept with it."""
        self.path.write_text(text)
        folders = (*self.candidate.include_dirs, str(self.candidate.path.parent))
        return replace(self.candidate, path=self.path, include_dirs=folders)


@contextmanager
def copy_of(candidate: Candidate) -> Iterator[Copy]:
    """Yield a copy in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="weft-fix-") as folder:
        yield Copy(candidate, Path(folder, candidate.path.name))


def passes(candidate: Candidate, task: Task, workloads: Sequence[Workload]) -> bool:
    """Return whether it passes these workloads, the smallest first; not if it does not compile."""
    try:
        return all(check(candidate, task, workload, tools=FAST).passed for workload in workloads)
    except WeftError:
        return False


def find_in_source(
    candidate: Candidate, task: Task, workloads: Sequence[Workload], suspected: Sequence[int], progress: Progress
) -> tuple[Repair, ...]:
    """Return the first edit of the source that makes all workloads pass; empty if there is none, or if they pass as
    it is. Only statements and constants of suspected lines are tested.
    """
    original, until = candidate.path.read_text(), time.process_time() + MOST_SECONDS
    edits = by_suspicion(source_edits(original), suspected)[:MOST_TEXTS]
    source = candidate.kernel.source
    if source.is_triton or source.compiled or not edits or passes(candidate, task, workloads[:1]):
        return ()
    progress(f"trying {len(edits)} edits of the source")
    with copy_of(candidate) as copy:
        for edit in edits:
            if time.process_time() > until:
                break
            if passes(copy.with_text(edit.text), task, workloads):
                return (Repair(Place(str(candidate.path), edit.line), edit.words, edit.kind, edit.text),)
    return ()
