"""Finds the line that computes the wrong index of accesses outside their buffers.

Every access of the kernel to the same kind of memory depends on some lines. The faulty line is one on which all stray
accesses depend, and none of those that stay inside. If there are several: where an access strays for every thread and
in every iteration, the first line that has one value in the CTA and another in others, such as that of a head;
otherwise the nearest.
"""

from collections.abc import Iterator, Sequence, Set

import numpy as np

from weft.core.records import Dim3, Finding, Place
from weft.engines.kernel_file import KernelFile
from weft.ptx.module import Function, Instruction, Special

from .nodes import Event
from .origins import Sources, body
from .records import STRAY, Case
from .spelling import own_place

_OF_THE_CTA = frozenset(f"%{name}.{axis}" for name in ("ctaid", "nctaid", "ntid") for axis in "xyz")
"""Special registers that are the same for all threads of a CTA."""


def base_line(case: Case, wrong: Event, right: Set[int], *, heads: bool) -> Place | None:
    """Return the line that computes a wrong offset of a load, the same for the entire CTA; None if there is none.

    An offset by whole heads is wrong where it is computed first, any other where it is added. Lines on which loads with
    `right` offsets (PTX lines) depend are not to blame.
    """
    found = _access_at(case, wrong.ptx_line, wrong.place)
    if found is None:
        return None
    accesses, access = found
    lines = accesses.of_the_cta(access, [ins for ins in accesses.body if ins.line in right], wrong.cta)
    return next(iter(reversed(lines) if heads else lines), None)


def row_line(case: Case, race: Finding) -> Place | None:
    """Return the line that computes the row of an element which two threads store; None if undecided.

    Two threads of a CTA get the same row from their places in the CTA, two CTAs from their places in the grid. Where
    each thread stores the row that it has loaded of Q, both come from one line; otherwise the store itself is wrong.
    Lanes of one warp that store one element have a wrong column.
    """
    taps = case.taps
    moved = taps is not None and any(fact.code == "other_row" for fact in taps.facts)
    if moved or (race.other_cta is None and race.warp == race.other_warp):
        return None
    found = _access_at(case, race.ptx_line, race.place)
    if taps is None or found is None:
        return None
    accesses, access = found
    loads = {taps.events[at].ptx_line for at in np.unique(taps.fetches["q"]).tolist()}
    return accesses.row(access, [ins for ins in accesses.body if ins.line in loads], apart=_apart(race))


def row_of_access(case: Case, access: Event) -> Place | None:
    """Return the line that computes the row of an access, from the places of the thread in the CTA and in the grid."""
    found = _access_at(case, access.ptx_line, access.place)
    return found[0].row(found[1], [found[1]], apart=frozenset()) if found is not None else None


def index_of_load(case: Case, load: Event) -> Place | None:
    """Return the nearest line that computes an index of a load from the place of the thread in the CTA."""
    found = _access_at(case, load.ptx_line, load.place)
    return found[0].of_the_thread(found[1]) if found is not None else None


def _access_at(case: Case, ptx_line: int, place: Place | None) -> tuple["_Accesses", Instruction] | None:
    """Return the instruction there, with the accesses of its kernel: several kernels may have the line of the PTX."""
    for function in case.functions if case.kernel is not None else ():
        assert case.kernel is not None
        access = next((ins for ins in body(function) if ins.line == ptx_line and _is_access(ins)), None)
        if access is not None and own_place(access.place, case.kernel) == own_place(place, case.kernel):
            return _Accesses(function, case.kernel), access
    return None


def index_lines(case: Case, causes: Sequence[Finding]) -> tuple[Place, ...]:
    """Return the faulty lines of the first cause, if it is a stray access, nearest first; none if undecided."""
    if not causes or causes[0].code not in STRAY:
        return ()
    found = _access_at(case, causes[0].ptx_line, causes[0].place)
    if found is None:
        return ()
    (accesses, first), cta = found, causes[0].cta
    lines = {finding.ptx_line for finding in case.findings if finding.code in STRAY}
    strays_for_all = first.line not in _executed(case, cta)
    return tuple(accesses.to_blame(first, lines, _executed(case), cta if strays_for_all else None))


class _Accesses:
    """The accesses of one kernel."""

    def __init__(self, function: Function, kernel: KernelFile) -> None:
        self.body, self.kernel = body(function), kernel
        self.sources = Sources(function, None)

    def to_blame(self, first: Instruction, strayed: set[int], executed: set[int], cta: Dim3 | None) -> Iterator[Place]:
        """Yield the faulty lines. They are source lines, as copies of an unrolled access are one line; they are cleared
        by instruction, as a line may have a part that other accesses share.
        """
        alike = [ins for ins in self.body if _is_access(ins) and _space(ins) == _space(first)]
        wrong = [ins for ins in alike if ins.line in strayed]
        lines = {self._line(ins) for ins in wrong}
        inside = [ins for ins in alike if ins.line in executed and self._line(ins) not in lines]
        cleared = {ins.line for access in inside for ins in self._depends_on(access)}
        blamed = [self._lines(ins, cleared) for ins in wrong]
        own = lines if len(lines) > 1 else set()
        shared = [
            line for line in self._lines(first, cleared) if line not in own and all(line in others for others in blamed)
        ]
        bases = [] if cta is None else [line for line in self.of_the_cta(first, inside, cta) if line in shared]
        yield from dict.fromkeys([*bases[-1:], *shared])

    def of_the_cta(self, access: Instruction, inside: Sequence[Instruction], cta: Dim3) -> list[Place]:
        """Return the lines that compute an index from the place of this CTA in the grid alone, nearest first; without
        those on which the accesses that stay `inside` depend.
        """
        places = {f"%ctaid.{axis}" for axis, at in zip("xyz", cta, strict=True) if at}
        cleared = {ins.line for other in inside for ins in self._depends_on(other)}
        chain = self._depends_on(access)
        found = [ins for ins in chain if ins.line not in cleared and places & self._of_the_cta(ins)]
        lines = (self._line(ins) or self._line_of_use(ins, chain) for ins in found)
        return list(dict.fromkeys(line for line in lines if line is not None))

    def _line_of_use(self, made: Instruction, chain: Sequence[Instruction]) -> Place | None:
        """Return where a value is used first: one that is computed before a loop, for all iterations, has no line."""
        names = {reg.name for reg in made.written()}
        users = (ins for ins in reversed(chain) if names & {reg.name for reg in ins.read()})
        return next(filter(None, map(self._line, users)), None)

    def of_the_thread(self, access: Instruction) -> Place | None:
        """Return the nearest line that computes an index from the place of the thread in the CTA."""
        own = (ins for ins in self._depends_on(access) if self._specials(ins) - _OF_THE_CTA)
        return next(filter(None, map(self._line, own)), None)

    def row(self, store: Instruction, of_q: Sequence[Instruction], *, apart: Set[str]) -> Place | None:
        """Return the line that first computes the place in the grid of CTAs that are `apart`, or that of a thread in
        the grid if none are; loads of Q depend on it too.
        """
        shared = {self._line(ins) for load in of_q for ins in self._depends_on(load)}
        for ins in reversed(self._depends_on(store)):
            specials = self._specials(ins)
            of_threads = not specials <= _OF_THE_CTA and any(name.startswith("%ctaid") for name in specials)
            wanted = bool(specials & apart) and specials <= _OF_THE_CTA if apart else of_threads
            if wanted and self._line(ins) in shared:
                return self._line(ins)
        return None

    def _of_the_cta(self, ins: Instruction) -> set[str]:
        """Return the special registers of which it is computed, none if it may differ between threads or iterations."""
        found = self._specials(ins)
        return found if found <= _OF_THE_CTA else set()

    def _specials(self, ins: Instruction) -> set[str]:
        """Return the special registers of which it is computed, none if it may differ between iterations."""
        step, seen = [ins], {ins.line}
        found: set[str] = set()
        for each in step:
            found |= {operand.name for operand in each.operands if isinstance(operand, Special)}
            for reg in each.read():
                made = self.sources.writers[reg.name]
                if len(made) > 1:  # it changes from iteration to iteration
                    return set()
                step += [other for other in made if other.line not in seen]
                seen |= {other.line for other in made}
        return found

    def _lines(self, access: Instruction, cleared: set[int]) -> list[Place]:
        """Return the access's own line, then the lines of its index."""
        found = [self._line(ins) for ins in (access, *self._depends_on(access)) if ins.line not in cleared]
        return list(dict.fromkeys(line for line in found if line is not None))

    def _depends_on(self, access: Instruction) -> list[Instruction]:
        addresses = (made for made, of_address in self.sources.makers(access) if of_address)
        seeds = [self.sources.by_line[line] for line in sorted(set(addresses), reverse=True)]
        return list(filter(self.sources.is_index, (*seeds, *self.sources.back(seeds, branches=False))))

    def _line(self, ins: Instruction) -> Place | None:
        return _without_columns(own_place(ins.place, self.kernel))


def _apart(race: Finding) -> set[str]:
    """Return the coordinates in which the two CTAs of a race differ; none within a CTA."""
    pairs = zip("xyz", race.cta, race.other_cta or race.cta, strict=True)
    return {f"%ctaid.{axis}" for axis, one, other in pairs if one != other}


def _executed(case: Case, cta: Dim3 | None = None) -> set[int]:
    """Return the PTX lines of accesses that moved followed values: an access that never ran clears no line. With a CTA,
    those of the elements of Q, K and V that it loaded, if it was recorded.
    """
    taps = case.taps
    if taps is None:
        return set()
    if cta is not None and any(event.cta == cta for event in taps.events[1:]):
        loads = (taps.events[at] for each in (*taps.fetches.values(), *taps.reads.values()) for at in np.unique(each))
        return {event.ptx_line for event in loads if event.cta == cta}
    return {act.event.ptx_line for act in taps.acts if act.what in ("load", "store")}


def _space(ins: Instruction) -> str:
    return ins.space if ins.space in ("global", "shared", "local") else ""


def _without_columns(place: Place | None) -> Place | None:
    """Return it with its inlining calls: a function's line may be right for one caller and wrong for another."""
    if place is None or not place.line:
        return None
    return Place(place.file, place.line, inlined_at=_without_columns(place.inlined_at))


def _is_access(ins: Instruction) -> bool:
    """Whether lanes load or store data, alone or a matrix together."""
    facts = ins.facts
    return facts.uses_memory and not (facts.waits or facts.is_atomic or facts.is_mbarrier)
