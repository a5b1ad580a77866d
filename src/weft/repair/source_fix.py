"""A repair of the -G build → a change of the source, compiled again and judged on every workload of the choice."""

import difflib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import Unsupported
from weft.judge.candidate import Candidate
from weft.tasks.task import Task, Workload

from .repair import Repair
from .rewrite import rewrites
from .source_trials import copy_of, passes

MOST_TEXTS = 60
MOST_SECONDS = 40.0
"""CPU time after which no further text is tested."""

JudgeAll = Callable[[Candidate], tuple[bool, int]]
"""Returns whether a candidate passes all workloads, and how many were judged."""


@dataclass(frozen=True)
class SourceFix:
    """A change of the source with which the kernel passes."""

    path: Path
    repair: Repair
    """The edit that it writes into the source."""
    text: str
    """The file after the change."""
    diff: str
    workloads: int
    """How many it passed, with all checkers."""

    def apply(self) -> None:
        """Write the file."""
        self.path.write_text(self.text)


def find_source_fix(
    candidate: Candidate, task: Task, repairs: Sequence[Repair], workloads: Sequence[Workload], judge_all: JudgeAll
) -> SourceFix | None:
    """Return the first change of the source, in the order of the repairs, that passes `workloads` and all others."""
    path, until = candidate.path, time.process_time() + MOST_SECONDS
    original = path.read_text()
    with copy_of(candidate) as copy:
        for repair, text in _texts(original, path.name, repairs):
            if time.process_time() > until:
                return None
            tried = copy.with_text(text)
            if passes(tried, task, workloads):
                passed, judged = judge_all(tried)
                if passed:
                    return SourceFix(path, repair, text, _diff(path, original, text), judged)
    return None


def _texts(original: str, name: str, repairs: Sequence[Repair]) -> Iterator[tuple[Repair, str]]:
    tried: set[str] = set()
    for repair in repairs:
        if repair.text:
            yield repair, repair.text
        elif Path(repair.place.file).name == name:
            try:
                texts = rewrites(original, name, repair.place.line, repair.kind, repair.words)
            except Unsupported:  # the diagnosis stands without a change of the source
                return
            for text in texts[:MOST_TEXTS]:
                if text not in tried:
                    tried.add(text)
                    yield repair, text


def _diff(path: Path, before: str, after: str) -> str:
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), n=1, lineterm="")
    return "\n".join(rows)
