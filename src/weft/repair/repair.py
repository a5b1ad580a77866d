"""Finds the line of a mistake by repairing it: small edits are tested until the failing workload passes.

Edits of the most suspected lines come first. An edit that makes the smallest failing workload pass must also repair the
workload that failed first, with its other sizes: an edit that only hides the symptom rarely does.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from weft.core.errors import WeftError
from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.tasks.task import Problem, Task

from .attempt import Bench
from .edits import Edit
from .templates import Kind

BATCH = 350
"""Edits that are compiled into one kernel."""
BATCHES_OF_ALL = 18
"""A large kernel takes long to compile even without edits: a batch is at least this part of all its edits."""
MOST_BATCHES = 10
MOST_SECONDS = 35.0
"""CPU time after which no further edit is tested."""

Progress = Callable[[str], None]

_LATER: Mapping[Kind, int] = {
    Kind.TERM: 4,
    Kind.EXCHANGE: 12,
    Kind.VALUE: 18,
    Kind.OPERAND: 24,
    Kind.GUARDED: 24,
}
"""How many places in the order of suspected lines a kind of edit is put back."""
_NEARBY = 12
"""Lines around an edit that repairs, in which simpler edits are tested too."""
_PER_LINE = 3
"""Places that one line of distance from a suspected line counts."""


@dataclass(frozen=True)
class Repair:
    """An edit with which the kernel passes."""

    place: Place
    words: str
    """What is changed: `33 → 32`."""
    kind: Kind = Kind.CONSTANT
    text: str = ""
    """The file with the edit, where it was made in the source."""


def find_repairs(
    candidate: Candidate,
    task: Task,
    problems: Sequence[Problem],
    suspected: Sequence[int],
    progress: Progress,
) -> tuple[Repair, ...]:
    """Return the edits that repair all problems, the likeliest mistake first; the first problem is the smallest.

    `suspected` are source lines, the most suspicious first. Empty if no edit repairs them, and for a kernel that has no
    -G build (Triton, PTX) or whose problem passes in a plain run, as with a race.
    """
    source = candidate.kernel.source
    if source.is_triton or source.compiled:
        return ()
    try:
        bench = Bench.of(candidate, task, problems[0], time.process_time() + MOST_SECONDS)
        others = [Bench.of(candidate, task, problem) for problem in problems[1:]]
        edits = bench.edits()
        tested: set[Edit] = set()
        for number, batch in enumerate(_batches(edits, suspected), 1):
            if time.process_time() > bench.until:
                break
            progress(f"trying {len(batch)} edits ({number} of at most {MOST_BATCHES})")
            tested.update(batch)
            if found := _repairing(bench, others, batch):
                nearby = [edit for edit in _simpler_nearby(edits, found) if edit not in tested]
                return tuple(_by_line([*found, *_repairing(bench, others, nearby)], suspected))
    except WeftError:  # a -G build that does not compile or run repairs nothing
        return ()
    return ()


def _batches(edits: Sequence[Edit], suspected: Sequence[int]) -> Iterator[Sequence[Edit]]:
    """Yield batches, the likeliest edits of the most suspected lines first."""
    places = {line: _place_in(line, suspected) for line in {edit.place.line for edit in edits}}
    ordered = sorted(edits, key=lambda edit: places[edit.place.line] + _LATER.get(edit.kind, 0))
    size = max(BATCH, len(ordered) // BATCHES_OF_ALL)
    for first in range(0, min(len(ordered), size * MOST_BATCHES), size):
        yield sorted(ordered[first : first + size], key=lambda edit: edit.order)


def _repairing(bench: Bench, others: Sequence[Bench], edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that repair all problems."""
    found = list(bench.passing(edits)) if edits else []
    for other in others:
        if found:
            # Of the same code all edits are kept, so that nothing is compiled again.
            kept = edits if other.binary.ptx == bench.binary.ptx else found
            found = list(_also(other, kept, found))
    return found


def _simpler_nearby(edits: Sequence[Edit], found: Sequence[Edit]) -> list[Edit]:
    """Return constants and operations near edits of other kinds: `x = y` for `x += y` also repairs a wrong first x."""
    kind, lines = min(edit.kind for edit in found), {edit.place.line for edit in found}
    simpler = [edit for edit in edits if edit.kind < min(kind, Kind.TERM)]
    near = [edit for edit in simpler if any(abs(edit.place.line - line) <= _NEARBY for line in lines)]
    return sorted(near[:BATCH], key=lambda edit: edit.order)


def _place_in(line: int, suspected: Sequence[int]) -> int:
    """Return the place of a line among the suspected ones; a line between them is put behind its neighbour."""
    return min((at + _PER_LINE * abs(line - other) for at, other in enumerate(suspected)), default=0)


def _also(bench: Bench, edits: Sequence[Edit], found: Sequence[Edit]) -> Iterator[Edit]:
    """Yield those that were found and repair another problem, too. Its build may have other registers and sizes."""
    kept, keys = {edit.key for edit in edits}, {edit.key: edit for edit in found}
    same = sorted((edit for edit in bench.edits() if edit.key in kept), key=lambda edit: edit.order)
    for edit in bench.passing(same, {edit for edit in same if edit.key in keys}):
        yield keys[edit.key]


def _by_line(edits: Sequence[Edit], suspected: Sequence[int]) -> Iterator[Repair]:
    """Yield the likeliest edit of each line."""
    ordered = sorted(edits, key=lambda edit: edit.place.line)
    best = [min(group, key=lambda edit: edit.kind) for _, group in groupby(ordered, key=lambda edit: edit.place.line)]
    for edit in sorted(best, key=lambda edit: (edit.kind, _place_in(edit.place.line, suspected))):
        yield Repair(edit.place, edit.words, edit.kind)
