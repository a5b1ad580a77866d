"""Finds the line that computes the wrong index of accesses outside their buffers.

Every access of the kernel to the same kind of memory depends on some lines. The faulty line is one on which all stray
accesses depend, and none of those that stay inside. If there are several: where an access strays for every thread and
in every iteration, the first line that has one value in the CTA and another in others, such as that of a head;
otherwise the nearest.
"""

from collections.abc import Iterator, Sequence

from weft.core.records import Dim3, Finding, Place
from weft.engines.kernel_file import KernelFile
from weft.ptx.module import Function, Instruction, Special

from .origins import Sources, body
from .records import Case
from .spelling import own_place

STRAY = ("M101", "M102")
_OF_THE_CTA = frozenset(f"%{name}.{axis}" for name in ("ctaid", "nctaid", "ntid") for axis in "xyz")
"""Special registers that are the same for all threads of a CTA."""


def index_lines(case: Case, causes: Sequence[Finding]) -> tuple[Place, ...]:
    """Return the faulty lines of the first cause, if it is a stray access, nearest first; none if undecided."""
    if case.kernel is None or not causes or causes[0].code not in STRAY:
        return ()
    lines = {finding.ptx_line for finding in case.findings if finding.code in STRAY}
    for function in case.functions:
        first = next((ins for ins in body(function) if ins.line == causes[0].ptx_line and _is_access(ins)), None)
        if first is not None and own_place(first.place, case.kernel) == own_place(causes[0].place, case.kernel):
            return tuple(_Accesses(function, case.kernel).to_blame(first, lines, _executed(case), causes[0].cta))
    return ()


class _Accesses:
    """The accesses of one kernel."""

    def __init__(self, function: Function, kernel: KernelFile) -> None:
        self.body, self.kernel = body(function), kernel
        self.sources = Sources(function, None)

    def to_blame(self, first: Instruction, strayed: set[int], executed: set[int], cta: Dim3) -> Iterator[Place]:
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
        base = None if first.line in executed else self._base(first, cleared, shared, cta)
        yield from dict.fromkeys([base, *shared] if base is not None else shared)

    def _base(self, access: Instruction, cleared: set[int], lines: Sequence[Place], cta: Dim3) -> Place | None:
        """Return the line, of these, that computes an index first, from the place of this CTA in the grid alone."""
        places = {f"%ctaid.{axis}" for axis, at in zip("xyz", cta, strict=True) if at}
        for ins in reversed(self._depends_on(access)):
            line = self._line(ins)
            if ins.line not in cleared and line in lines and places & self._of_the_cta(ins):
                return line
        return None

    def _of_the_cta(self, ins: Instruction) -> set[str]:
        """Return the special registers of which it is computed, none if it may differ between threads or iterations."""
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
        return found if found <= _OF_THE_CTA else set()

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
