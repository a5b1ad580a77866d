"""Finds the line that computes the wrong index of accesses outside their buffers.

Every access of the kernel to the same kind of memory depends on some lines. The faulty line is one on which all stray
accesses depend, and none of those that stay inside; the nearest if there are several.
"""

from collections.abc import Iterator, Sequence

from weft.core.records import Finding, Place
from weft.engines.kernel_file import KernelFile
from weft.ptx.module import Function, Instruction

from .origins import Sources, body
from .records import Case
from .spelling import own_place

STRAY = ("M101", "M102")


def index_lines(case: Case, causes: Sequence[Finding]) -> tuple[Place, ...]:
    """Return the faulty lines of the first cause, if it is a stray access, nearest first; none if undecided."""
    if case.kernel is None or not causes or causes[0].code not in STRAY:
        return ()
    lines = {finding.ptx_line for finding in case.findings if finding.code in STRAY}
    for function in case.functions:
        first = next((ins for ins in body(function) if ins.line == causes[0].ptx_line and _is_access(ins)), None)
        if first is not None and own_place(first.place, case.kernel) == own_place(causes[0].place, case.kernel):
            return tuple(_Accesses(function, case.kernel).to_blame(first, lines, _executed(case)))
    return ()


class _Accesses:
    """The accesses of one kernel."""

    def __init__(self, function: Function, kernel: KernelFile) -> None:
        self.body, self.kernel = body(function), kernel
        self.sources = Sources(function, None)

    def to_blame(self, first: Instruction, strayed: set[int], executed: set[int]) -> Iterator[Place]:
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
        for line in self._lines(first, cleared):
            if line not in own and all(line in others for others in blamed):
                yield line

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


def _executed(case: Case) -> set[int]:
    """Return the PTX lines of accesses that moved followed values: an access that never ran clears no line."""
    acts = case.taps.acts if case.taps is not None else ()
    return {act.event.ptx_line for act in acts if act.what in ("load", "store")}


def _space(ins: Instruction) -> str:
    return ins.space if ins.space in ("global", "shared", "local") else ""


def _without_columns(place: Place | None) -> Place | None:
    """Return it with its inlining calls: a function's line may be right for one caller and wrong for another."""
    if place is None or not place.line:
        return None
    return Place(place.file, place.line, inlined_at=_without_columns(place.inlined_at))


def _is_access(ins: Instruction) -> bool:
    """Whether each lane loads or stores data for itself."""
    facts = ins.facts
    return facts.uses_memory and not (facts.group or facts.is_atomic or facts.is_mbarrier)
