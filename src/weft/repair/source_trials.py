"""Texts of a source that are compiled one by one, and judged on the failing workloads."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from weft.core.errors import WeftError
from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.judge.judge import check
from weft.tasks.task import Task, Workload

from .repair import Repair
from .source_edits import SourceEdit, barrier_edits, by_suspicion, edits_of_lines, source_edits

LIKELY, MOST_LINES = 10, 20
"""Lines whose small edits are tested before, and after, exchanged statements and constants with a name."""
MOST_TEXTS = 40


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


def passes(candidate: Candidate, task: Task, workloads: Sequence[Workload], tools: Sequence[str] = ()) -> bool:
    """Return whether it passes these workloads with these optional checkers, the smallest first; not if it does not
    compile.
    """
    try:
        return all(check(candidate, task, workload, tools=tuple(tools)).passed for workload in workloads)
    except WeftError:
        return False


def likely_edits(candidate: Candidate, likely: Sequence[int]) -> Iterator[Repair]:
    """Yield texts of a CUDA file with small edits of the likely lines."""
    if _is_cuda(candidate):
        text, path = candidate.path.read_text(), str(candidate.path)
        lines = [line for line in dict.fromkeys(likely) if line > 0][:LIKELY]
        yield from _repairs(path, edits_of_lines(text, path, lines))


def further_edits(candidate: Candidate, suspected: Sequence[int]) -> Iterator[Repair]:
    """Yield texts of a CUDA file with exchanged statements and constants of suspected lines, then with small edits of
    these.
    """
    if _is_cuda(candidate):
        text, path = candidate.path.read_text(), str(candidate.path)
        yield from _repairs(path, iter(by_suspicion(source_edits(text), suspected)[:MOST_TEXTS]))
        yield from _repairs(path, edits_of_lines(text, path, suspected[:MOST_LINES]))


def _is_cuda(candidate: Candidate) -> bool:
    return not candidate.kernel.source.is_triton and not candidate.kernel.source.compiled


def added_barriers(candidate: Candidate, after: int, *, of_warp: bool) -> Iterator[Repair]:
    """Yield texts with a barrier behind a line."""
    source, text = candidate.kernel.source, candidate.path.read_text()
    if source.compiled or after > text.count("\n"):
        return
    barriers = ["tl.debug_barrier()"] if source.is_triton else ["__syncwarp();"] * of_warp + ["__syncthreads();"]
    yield from _repairs(str(candidate.path), barrier_edits(text, after, barriers))


def _repairs(path: str, edits: Iterator[SourceEdit]) -> Iterator[Repair]:
    return (Repair(Place(path, edit.line), edit.words, edit.kind, edit.text) for edit in edits)
