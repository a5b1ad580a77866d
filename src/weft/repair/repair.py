"""Finds the line of a mistake by repairing it: small edits are tested until the failing workload passes.

Edits of the most suspected lines come first. An edit that makes the smallest failing workload pass must also repair the
workload that failed first, with its other sizes: an edit that only hides the symptom rarely does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice, zip_longest
from typing import Any, TypeVar

from weft.core.errors import WeftError
from weft.core.records import Place
from weft.judge.candidate import Candidate
from weft.tasks.task import Problem, Task

from .attempt import Bench, cpu_seconds
from .edits import Edit
from .templates import Kind

BATCH = 350
"""Edits that are compiled into one kernel."""
BATCHES_OF_ALL = 18
"""A large kernel takes long to compile even without edits: a batch is at least this part of all its edits."""
MOST_BATCHES = 10
MOST_SECONDS = 35.0
"""CPU time after which no further edit is tested."""
LEAST_CORRECTED = 0.1
"""An edit that corrects a smaller share of the wrong elements says nothing about its line."""

Progress = Callable[[str], None]
Batch = TypeVar("Batch", bound=Sequence[Any])

_LATER: Mapping[Kind, int] = {
    Kind.TERM: 4,
    Kind.EXCHANGE: 12,
    Kind.VALUE: 18,
    Kind.OPERAND: 24,
    Kind.GUARDED: 24,
}
"""How many places in the order of suspected lines a kind of edit is put back."""
_OF_FIRST = 6
"""Edits of the most suspected line are put back by a smaller part of that."""
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
    corrected: float = 1.0
    """The share of the wrong elements of the smallest workload that are right with it; 1: all tested workloads pass."""


@dataclass(frozen=True)
class Found:
    """What the tested edits do."""

    whole: tuple[Repair, ...] = ()
    """Those that repair all problems, the likeliest mistake first."""
    partly: tuple[Repair, ...] = ()
    """One for each line where an edit corrects a part of the wrong elements and makes no other wrong, most first."""


def find_repairs(
    candidate: Candidate,
    task: Task,
    problems: Sequence[Problem],
    suspected: Sequence[int],
    progress: Progress,
) -> Iterator[Found]:
    """Yield what the edits do that were tested so far, batch by batch, until some repair all problems; the first
    problem is the smallest.

    `suspected` are source lines, the most suspicious first. Nothing is found for a kernel that has no -G build (Triton,
    PTX) or whose problem passes in a plain run, as with a race.
    """
    source = candidate.kernel.source
    if source.is_triton or source.compiled:
        return
    partly: dict[Edit, float] = {}
    try:
        bench = Bench.of(candidate, task, problems[0], cpu_seconds() + MOST_SECONDS)
        others = [Bench.of(candidate, task, problem) for problem in problems[1:]]
        edits = bench.edits()
        if not edits:
            return
        tested: set[Edit] = set()
        for number, batch in enumerate(islice(_batches(edits, suspected, bench.launches_of), MOST_BATCHES), 1):
            if cpu_seconds() > bench.until:
                return
            progress(f"trying {len(batch)} edits ({number} of at most {MOST_BATCHES})")
            tested.update(batch)
            if found := _repairing(bench, others, batch, partly):
                nearby = [edit for edit in _simpler_nearby(edits, found) if edit not in tested]
                found += _repairing(bench, others, nearby, partly)
                yield Found(tuple(_by_line(found, suspected)), _partly(partly, suspected))
                return
            yield Found((), _partly(partly, suspected))
    except WeftError:  # a -G build that does not compile or run repairs nothing, and one that passes needs no repair
        return


def _partly(found: Mapping[Edit, float], suspected: Sequence[int]) -> tuple[Repair, ...]:
    made = [Repair(edit.place, edit.words, edit.kind, corrected=share) for edit, share in found.items()]
    return most_first(made, suspected)


def _batches(
    edits: Sequence[Edit], suspected: Sequence[int], launches_of: Mapping[str, tuple[int, ...]]
) -> Iterator[Sequence[Edit]]:
    """Yield batches, the likeliest edits of the most suspected lines first.

    The edits of a batch change the same launches, as every changed kernel is compiled. Every second batch is of the
    most suspected launches, the others are of the rest, the smallest first: which launch is wrong is not always known,
    and one that prepares the inputs of another is often small.
    """
    places = {line: place_among(line, suspected) for line in {edit.place.line for edit in edits}}
    by_launches: dict[tuple[int, ...], list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: _turn(places[edit.place.line], edit.kind)):
        by_launches.setdefault(launches_of.get(edit.function, ()), []).append(edit)
    first, *others = by_launches.items()
    others.sort(key=lambda each: len(each[0]) * len(each[1]))
    for batch in taking_turns(_cut(first[1]), [_cut(group) for _, group in others]):
        yield sorted(batch, key=lambda edit: edit.order)


def _turn(place: int, kind: Kind) -> float:
    """Return the place of an edit among all; the most suspected line has few kinds of edits before the others."""
    later = _LATER.get(kind, 0)
    return place + (later if place else later / _OF_FIRST)


def taking_turns(suspected: Iterable[Batch], others: Sequence[Iterable[Batch]]) -> Iterator[Batch]:
    """Yield every second batch of `suspected`, and one of each of the others in turn between them."""
    rest = chain.from_iterable(zip_longest(*others))
    yield from filter(None, chain.from_iterable(zip_longest(suspected, filter(None, rest))))


def _cut(ordered: Sequence[Edit]) -> Iterator[Sequence[Edit]]:
    size = max(BATCH, len(ordered) // BATCHES_OF_ALL)
    size = len(ordered) if len(ordered) <= 2 * BATCH else size
    return (ordered[first : first + size] for first in range(0, len(ordered), size))


def _repairing(bench: Bench, others: Sequence[Bench], edits: Sequence[Edit], partly: dict[Edit, float]) -> list[Edit]:
    """Return the edits that repair all problems; add those that correct a part of the first to `partly`."""
    tried = dict(bench.tried(edits)) if edits else {}
    partly.update({edit: trial.corrected for edit, trial in tried.items() if trial.corrected >= LEAST_CORRECTED})
    found = [edit for edit, trial in tried.items() if trial.passed]
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


def place_among(line: int, suspected: Sequence[int]) -> int:
    """Return the place of a line among the suspected ones; a line between them is put behind its neighbour."""
    return min((at + _PER_LINE * abs(line - other) for at, other in enumerate(suspected)), default=0)


def _also(bench: Bench, edits: Sequence[Edit], found: Sequence[Edit]) -> Iterator[Edit]:
    """Yield those that were found and repair another problem, too. Its build may have other registers and sizes."""
    kept, keys = {edit.key for edit in edits}, {edit.key: edit for edit in found}
    same = sorted((edit for edit in bench.edits() if edit.key in kept), key=lambda edit: edit.order)
    for edit, trial in bench.tried(same, {edit for edit in same if edit.key in keys}):
        if trial.passed:
            yield keys[edit.key]


def _by_line(edits: Sequence[Edit], suspected: Sequence[int]) -> list[Repair]:
    return likeliest_first([Repair(edit.place, edit.words, edit.kind) for edit in edits], suspected)


def likeliest_first(repairs: Sequence[Repair], suspected: Sequence[int]) -> list[Repair]:
    """Return the likeliest edit of each line, the likeliest first."""
    ordered = sorted(repairs, key=lambda each: each.place.line)
    best = [min(group, key=lambda each: each.kind) for _, group in groupby(ordered, key=lambda each: each.place.line)]
    return sorted(best, key=lambda each: (each.kind, place_among(each.place.line, suspected)))


def most_first(repairs: Sequence[Repair], suspected: Sequence[int]) -> tuple[Repair, ...]:
    """Return the edit of each line that corrects most, the line with most first; of equal ones the most suspected."""
    ordered = sorted(repairs, key=lambda each: each.place.line)
    groups = (tuple(group) for _, group in groupby(ordered, key=lambda each: each.place.line))
    best = [max(group, key=lambda each: (each.corrected, -each.kind)) for group in groups]
    return tuple(sorted(best, key=lambda each: (-each.corrected, place_among(each.place.line, suspected))))
