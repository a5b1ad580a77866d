"""Follows one thread through a kernel's blocks, and skips most rounds of loops.

A loop over 131,072 keys is not executed: when a second round changed every register by as much as the first did, the
thread continues at the round in which the result of a comparison first changes. Between the two all followed numbers
are linear, so the largest are at the ends.

At a branch that depends on data the thread takes one path, and the other one later if nothing else led there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..module import Instruction
from .numbers import Difference, Number, Truth, Value
from .steps import Parameter, Steps, holds

MOST_STEPS = 20_000
"""Limit of the steps that a thread takes."""
MOST_SKIPS = 4
"""After this many skips of a loop a choice no longer ends a skip: it belongs to a ring of buffers, or a remainder."""


@dataclass(frozen=True)
class Access:
    """An access of global memory: its address, and the exact one."""

    site: Instruction
    bits: int
    exact: int
    origin: tuple[Instruction, int] | None


@dataclass(frozen=True)
class Comparison:
    """A comparison of numbers, one of which overflowed: its result may differ from that of the exact numbers."""

    site: Instruction
    origin: tuple[Instruction, int]


Decisions = list[tuple[int, tuple[Difference, ...]]]
"""Site (its identity) and the values that decided it, in the order of the run."""


@dataclass
class _Loop:
    """The rounds of a loop since it was entered, or since rounds were last skipped."""

    states: list[dict[str, Value]] = field(default_factory=list)
    """Registers at its first block; the last three."""
    marks: list[int] = field(default_factory=list)
    """How many decisions there were at that time."""
    skips: dict[int, int] = field(default_factory=dict)
    """Site → how often rounds were skipped up to where its result should change."""


_Start = tuple[int, dict[str, Value]]
"""A block, and the registers to continue with."""


class FollowedThread:
    """A thread that is followed; see `steps.Thread`."""

    def __init__(self, registers: Mapping[str, Value], parameters: Mapping[Parameter, Value]) -> None:
        self.registers = dict(registers)
        self.call_memory = dict(parameters)
        self.found: dict[int, Access] = {}
        """By the site's identity: the first wrong access, else the last access."""
        self.compared: dict[int, Comparison] = {}
        self._decisions: Decisions = []
        self._steps = 0
        self._heads: set[int] = set()
        """Blocks that a branch returns to."""

    def decides(self, site: Instruction, *differences: Difference) -> None:
        self._decisions.append((id(site), differences))

    def compares(self, site: Instruction, numbers: tuple[Number, ...]) -> None:
        origin = next((number.origin for number in numbers if number.origin), None)
        if origin is not None:
            self.compared.setdefault(id(site), Comparison(site, origin))

    def accesses(self, site: Instruction, address: Number, offset: int) -> None:
        before = self.found.get(id(site))
        if before is None or before.bits == before.exact:
            bits = address.bits + offset & (1 << 64) - 1
            self.found[id(site)] = Access(site, bits, address.exact + offset, address.origin)

    def follow(self, blocks: Sequence[Steps]) -> None:
        """Follow the first block to the end, then every branch not taken to blocks that were not visited."""
        self._heads = {way for each in blocks for way in each.block.successors if way <= each.block.id}
        visits = [0] * len(blocks)
        waiting: list[_Start] = [(0, self.registers)]
        while waiting and self._steps < MOST_STEPS:
            start, registers = waiting.pop()
            if visits[start]:
                continue
            self.registers = dict(registers)
            self._walk(blocks, start, visits, waiting)

    def _walk(self, blocks: Sequence[Steps], start: int, visits: list[int], waiting: list[_Start]) -> None:
        loops: dict[int, _Loop] = {}
        at: int | None = start
        while at is not None and self._steps < MOST_STEPS:
            visits[at] += 1
            here = blocks[at]
            for step in here.body:
                step(self)
            self._steps += len(here.body) + 1
            ways = self._ways(here)
            onward = min(ways, key=visits.__getitem__, default=None)  # ends a loop that waits for data
            waiting += [(way, dict(self.registers)) for way in ways if way != onward and not visits[way]]
            if onward in self._heads:
                self._arrive(loops, onward, again=onward <= at)
            at = onward

    def _ways(self, here: Steps) -> tuple[int, ...]:
        """Return the blocks that may follow; one if the condition is known."""
        block, end = here.block, here.block.end
        if end is None or end.facts.control not in ("jump", "table"):
            return () if block.next is None else (block.next,)
        taken = holds(self, end.guard, end)
        if end.facts.control == "table" and taken is not False:
            return block.successors
        if taken is None:
            return block.successors
        return block.targets if taken else () if block.next is None else (block.next,)

    def _arrive(self, loops: dict[int, _Loop], block: int, *, again: bool) -> None:
        """Enter a block that may begin a loop; rounds like the one before may be skipped."""
        if not again:
            loops.pop(block, None)
        loop = loops.setdefault(block, _Loop())
        loop.states = [*loop.states[-2:], dict(self.registers)]
        loop.marks = [*loop.marks[-2:], len(self._decisions)]
        if len(loop.states) < 3:
            return
        rounds, site = self._rounds_like_the_last(loop)
        if rounds > 1:
            loop.skips[site] = loop.skips.get(site, 0) + 1
            self.registers = _moved(loop.states, rounds - 1)
            loop.states, loop.marks = [dict(self.registers)], [len(self._decisions)]

    def _rounds_like_the_last(self, loop: _Loop) -> tuple[int, int]:
        """Return after how many rounds the result of a comparison first changes, and where; 0: never."""
        before, last = (self._once(*loop.marks[at : at + 2]) for at in (0, 1))
        nearest = (0, 0)
        for site, differences in last.items():
            if len(before.get(site, ())) != len(differences) or loop.skips.get(site, 0) == MOST_SKIPS:
                continue
            for now, then in zip(differences, before[site], strict=True):
                rounds = now.steps_to_flip(then)
                if rounds is not None and (not nearest[0] or rounds < nearest[0]):
                    nearest = (rounds, site)
        return nearest

    def _once(self, start: int, end: int) -> dict[int, tuple[Difference, ...]]:
        """Return what was decided once in a round; repeated decisions of an inner loop are not used."""
        found: dict[int, tuple[Difference, ...]] = {}
        often: set[int] = set()
        for site, differences in self._decisions[start:end]:
            if site in found:
                often.add(site)
            found[site] = differences
        return {site: differences for site, differences in found.items() if site not in often}


def _moved(states: Sequence[Mapping[str, Value]], rounds: int) -> dict[str, Value]:
    """Return the registers after `rounds` more rounds. One that changed unevenly stays: an index into a ring buffer."""
    first, second, third = states
    found = dict(third)
    for name, now in third.items():
        before, start = second.get(name), first.get(name)
        if now is before:
            continue
        if isinstance(now, Number) and isinstance(before, Number) and isinstance(start, Number):
            if now.exact != before.exact and now.exact - before.exact == before.exact - start.exact:
                found[name] = now.moved(before, rounds)
        elif isinstance(now, Truth) and isinstance(before, Truth) and len(now.differences) == 1:
            found[name] = _moved_truth(now, before, rounds)
    return found


def _moved_truth(now: Truth, before: Truth, rounds: int) -> Truth:
    if len(before.differences) != 1:
        return now
    (here,), (there,) = now.differences, before.differences
    later = Difference(here.cmp, here.value + rounds * (here.value - there.value))
    inverted = now.value != here.holds(here.value)
    return Truth(here.holds(later.value) != inverted, (later,))
