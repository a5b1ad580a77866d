"""Finds the line of a mistake by repairing it: small edits are tested until the failing workload passes.

The edits nearest to the suspected lines come first. An edit that makes the smallest failing workload pass must also
repair the workload that failed first, with its other sizes: an edit that only hides the symptom rarely does.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from weft.core.errors import WeftError
from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.tasks.task import Problem, Task

from .attempt import Bench
from .edits import OPERAND, Edit

BATCH = 200
"""Edits that are compiled into one kernel."""
MOST_BATCHES = 6


@dataclass(frozen=True)
class Repair:
    """An edit with which the kernel passes."""

    place: Place
    words: str
    """What is changed: `33 → 32`."""


def find_repairs(
    candidate: Candidate,
    task: Task,
    problems: Sequence[Problem],
    suspected: Sequence[int],
    progress: Callable[[str], None],
) -> tuple[Repair, ...]:
    """Return the edits that repair all problems, the likeliest mistake first; the first problem is the smallest.

    `suspected` are source lines, the most suspicious first. Empty if no edit repairs them, and for a kernel that has no
    -G build (Triton, PTX) or whose problem passes in a plain run, as with a race.
    """
    source = candidate.kernel.source
    if source.is_triton or source.compiled:
        return ()
    try:
        bench = Bench.of(candidate, task, problems[0])
        for number, batch in enumerate(_batches(bench.edits(), suspected), 1):
            progress(f"trying {len(batch)} edits ({number} of at most {MOST_BATCHES})")
            found = list(bench.passing(batch))
            for problem in problems[1:]:
                found = list(_also(Bench.of(candidate, task, problem), found))
            if found:
                return tuple(_by_line(found, suspected))
    except WeftError:  # a -G build that does not compile or run repairs nothing
        return ()
    return ()


def _batches(edits: Sequence[Edit], suspected: Sequence[int]) -> Iterator[Sequence[Edit]]:
    """Yield batches: other variables after everything else, and both by their distance from the suspected lines."""
    ordered = sorted(edits, key=lambda edit: (edit.kind == OPERAND, _distance(edit.place.line, suspected)))
    for first in range(0, min(len(ordered), BATCH * MOST_BATCHES), BATCH):
        yield sorted(ordered[first : first + BATCH], key=lambda edit: edit.ptx_line)


def _distance(line: int, suspected: Sequence[int]) -> int:
    return min((abs(line - other) for other in suspected), default=0)


def _also(bench: Bench, edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield those of the edits that repair another problem, too. Its build may have other registers."""
    if not edits:
        return
    keys = {edit.key: edit for edit in edits}
    same = [edit for edit in bench.edits() if edit.key in keys]
    for edit in bench.passing(sorted(same, key=lambda edit: edit.ptx_line)):
        yield keys[edit.key]


def _by_line(edits: Sequence[Edit], suspected: Sequence[int]) -> Iterator[Repair]:
    """Yield the likeliest edit of each line."""
    ordered = sorted(edits, key=lambda edit: edit.place.line)
    best = [min(group, key=lambda edit: edit.kind) for _, group in groupby(ordered, key=lambda edit: edit.place.line)]
    for edit in sorted(best, key=lambda edit: (edit.kind, _distance(edit.place.line, suspected))):
        yield Repair(edit.place, edit.words)
