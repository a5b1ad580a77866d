"""A repair of the -G build → a change of the source, compiled again and judged on every workload of the choice."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.core.errors import Unsupported
from weft.judge.candidate import Candidate
from weft.tasks.task import Task, Workload

from .attempt import cpu_seconds
from .repair import Repair
from .rewrite import rewrites
from .source_trials import copy_of, passes

MOST_TEXTS = 60
MOST_WRONG = 4
"""Texts that pass the failing workloads and fail another: the mistake is elsewhere."""

JudgeAll = Callable[[Candidate], tuple[Workload | None, int]]
"""Returns the first workload that a candidate fails, None if it passes all, and how many were judged."""


@dataclass(frozen=True)
class Attempt:
    """How texts are judged."""

    candidate: Candidate
    task: Task
    workloads: Sequence[Workload]
    """The failing ones and a wider one, the smallest first: every text is judged on them."""
    judge_all: JudgeAll
    """Judges a text that passes these."""
    tools: tuple[str, ...] = ()
    """The optional checkers that reject the file as it is."""


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


@dataclass
class Known:
    """What earlier texts of the same search showed."""

    texts: set[str] = field(default_factory=set)
    """Those that were tested: they are not tested again."""
    failed: list[Workload] = field(default_factory=list)
    """Workloads that texts failed which only hide the symptom: others are likely to fail there, too."""


@dataclass(frozen=True)
class Tried:
    """What tested texts do."""

    fix: SourceFix | None
    passing: tuple[Repair, ...]
    """Those that pass the failing workloads, in order; the last one is the fix if there is one."""


def find_source_fix(attempt: Attempt, repairs: Iterable[Repair], known: Known, seconds: float) -> Tried:
    """Return the first change of the source, in the order of the repairs, that passes `workloads` and all others.

    After `seconds` of CPU time no further text is tested; what judging a text on all workloads takes does not count.
    """
    path, until = attempt.candidate.path, cpu_seconds() + seconds
    original = path.read_text()
    passing: list[Repair] = []
    with copy_of(attempt.candidate) as copy:
        for repair, text in _texts(original, path.name, repairs, known.texts):
            if cpu_seconds() > until or len(passing) == MOST_WRONG:
                break
            tried = copy.with_text(text)
            small, *others = attempt.workloads
            if passes(tried, attempt.task, (small, *known.failed, *others), attempt.tools):
                passing.append(repair)
                start = cpu_seconds()
                wrong, judged = attempt.judge_all(tried)
                until += cpu_seconds() - start
                if wrong is not None and wrong not in known.failed:
                    known.failed.append(wrong)
                if wrong is None:
                    return Tried(SourceFix(path, repair, text, _diff(path, original, text), judged), tuple(passing))
    return Tried(None, tuple(passing))


def _texts(original: str, name: str, repairs: Iterable[Repair], known: set[str]) -> Iterator[tuple[Repair, str]]:
    for repair in repairs:
        texts = [repair.text] if repair.text else []
        if not texts and Path(repair.place.file).name == name:
            try:
                texts = rewrites(original, name, repair.place.line, repair.kind, repair.words)
            except Unsupported:  # the diagnosis stands without a change of the source
                return
        for text in texts[:MOST_TEXTS]:
            if text not in known:
                known.add(text)
                yield repair, text


def _diff(path: Path, before: str, after: str) -> str:
    rows = difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path), n=1, lineterm="")
    return "\n".join(rows)
