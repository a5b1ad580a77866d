"""A repair of the -G build → a change of the source, compiled again and judged on every workload of the choice."""

import difflib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from weft.core.errors import Unsupported, WeftError
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.tasks.task import Task, Workload

from .repair import Repair
from .rewrite import rewrites

MOST_TEXTS = 60
MOST_SECONDS = 40.0
"""CPU time after which no further text is tested."""
FAST: tuple[str, ...] = ()
"""Optional checkers while texts are tested: the choice is judged with all of them afterwards."""

JudgeAll = Callable[[Candidate], tuple[bool, int]]
"""Returns whether a candidate passes all workloads, and how many were judged."""


@dataclass(frozen=True)
class SourceFix:
    """A change of the source with which the kernel passes."""

    path: Path
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
    """Return the first change of the source that passes `workloads`, the smallest first, and then all others."""
    path, until = candidate.path, time.process_time() + MOST_SECONDS
    original = path.read_text()
    with tempfile.TemporaryDirectory(prefix="weft-fix-") as folder:
        changed = Path(folder, path.name)
        edited = replace(candidate, path=changed, include_dirs=(*candidate.include_dirs, str(path.parent)))
        for text in _texts(original, path.name, repairs):
            if time.process_time() > until:
                return None
            changed.write_text(text)
            tried = replace(edited)  # a new value: what a candidate has read of its file is kept with it
            if _passes(tried, task, workloads):
                passed, judged = judge_all(tried)
                if passed:
                    return SourceFix(path, text, _diff(path, original, text), judged)
    return None


def _texts(original: str, name: str, repairs: Sequence[Repair]) -> Iterator[str]:
    tried: set[str] = set()
    for repair in repairs:
        if Path(repair.place.file).name == name:
            try:
                texts = rewrites(original, name, repair.place.line, repair.kind, repair.words)
            except Unsupported:  # the diagnosis stands without a change of the source
                return
            for text in texts[:MOST_TEXTS]:
                if text not in tried:
                    tried.add(text)
                    yield text


def _passes(candidate: Candidate, task: Task, workloads: Sequence[Workload]) -> bool:
    try:
        return all(check(candidate, task, workload, tools=FAST).passed for workload in workloads)
    except WeftError:  # it does not compile
        return False


def _diff(path: Path, before: str, after: str) -> str:
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), n=1, lineterm="")
    return "\n".join(rows)
