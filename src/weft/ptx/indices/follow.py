"""Follow one thread through a kernel's blocks, with loops cut short.

A loop over 131,072 keys is not run: when a second round changed every register by as much as the first did, the thread
goes straight to the round in which a comparison first comes out otherwise. Between the two all followed numbers are
linear, so the largest stand at the ends.

At a branch that depends on data the thread goes one way, and the other way later if nothing else led there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..module import Instruction
from .numbers import Difference, Number, Truth, Value
from .steps import Parameter, Steps, holds

MOST_STEPS = 20_000
"""Steps that a thread may take."""
MOST_SKIPS = 4
"""A choice that ended so many skips of one loop no longer does: it belongs to a ring of buffers, or to a remainder."""


@dataclass(frozen=True)
class Access:
    """An access of global memory: where it goes, and where it should go."""

    site: Instruction
    bits: int
    exact: int
    origin: tuple[Instruction, int] | None


@dataclass(frozen=True)
class Comparison:
    """A comparison of numbers, one of which overflowed: it may decide otherwise than exact ones would."""

    site: Instruction
    origin: tuple[Instruction, int]


Decisions = list[tuple[int, tuple[Difference, ...]]]
"""Site (its identity) and what it was decided by, in the order of the run."""


@dataclass
class _Loop:
    """The rounds of a loop since it was entered, or since rounds were last skipped."""

    states: list[dict[str, Value]] = field(default_factory=list)
    """Registers at its first block; the last three."""
    marks: list[int] = field(default_factory=list)
    """How many decisions there were then."""
    skips: dict[int, int] = field(default_factory=dict)
    """Site → how often rounds were skipped up to where it should come out otherwise."""


_Start = tuple[int, dict[str, Value]]
"""A block, and the registers to go on with."""


class FollowedThread:
    """A thread on its way; see `steps.Thread`."""

    def __init__(self, registers: Mapping[str, Value], parameters: Mapping[Parameter, Value]) -> None:
        self.registers = dict(registers)
        self.call_memory = dict(parameters)
        self.found: dict[int, Access] = {}
        """By the site's identity: the first access that goes wrong, else the last one."""
        self.compared: dict[int, Comparison] = {}
        self._decisions: Decisions = []
        self._steps = 0
        self._heads: set[int] = set()
        """Blocks that a branch goes back to."""

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
        """Go from the first block to the end, then from every branch not taken to blocks that were not seen."""
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
            onward = min(ways, key=visits.__getitem__, default=None)  # so a loop that waits for data ends
            waiting += [(way, dict(self.registers)) for way in ways if way != onward and not visits[way]]
            if onward in self._heads:
                self._arrive(loops, onward, again=onward <= at)
            at = onward

    def _ways(self, here: Steps) -> tuple[int, ...]:
        """Where the block may end; one way where the condition is known."""
        block, end = here.block, here.block.end
        if end is None or end.form.name not in ("bra", "brx"):
            return () if block.next is None else (block.next,)
        taken = holds(self, end.guard, end)
        if end.form.name == "brx" and taken is not False:
            return block.successors
        if taken is None:
            return block.successors
        return block.targets if taken else () if block.next is None else (block.next,)

    def _arrive(self, loops: dict[int, _Loop], block: int, *, again: bool) -> None:
        """Come to a block that may begin a loop; a round that is like the one before may be skipped many times."""
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
        """In how many rounds a comparison first comes out otherwise, and where; 0: none ever will."""
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
        """What was decided once in a round; what an inner loop decides again and again says nothing here."""
        found: dict[int, tuple[Difference, ...]] = {}
        often: set[int] = set()
        for site, differences in self._decisions[start:end]:
            if site in found:
                often.add(site)
            found[site] = differences
        return {site: differences for site, differences in found.items() if site not in often}


def _moved(states: Sequence[Mapping[str, Value]], rounds: int) -> dict[str, Value]:
    """Registers after `rounds` more rounds. What did not change evenly stays: the place in a ring of buffers."""
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
