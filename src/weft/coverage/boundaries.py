"""The sizes at which a kernel takes another path, with one size varied at a time.

They come from comparisons in the compiled kernel whose outcome changes (`size_values.py`), and from launch lines that
choose another kernel, other macros or other launches.
"""

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weft.core.errors import WeftError
from weft.core.records import Binary, Place
from weft.engines.arguments import pack_parameters
from weft.engines.check_indices import Shapes
from weft.engines.kernel_file import KernelFile, PlannedLaunch
from weft.engines.spell_findings import user_place
from weft.ptx.module import Imm
from weft.vm.program import Program

from .records import Boundary
from .size_values import Launches, Outcomes, Values, compare_sizes

MOST_CHANGES = 6
"""A comparison whose outcome changes more often than this along a size is about the edges of tiles."""
PIECES = 24
"""The number of points that divide a gap in which an outcome changes."""
THREADS = ("first", "last CTA", "last")
"""Threads whose comparisons are examined: the first one, the first of the last CTA, the last one."""


@dataclass(frozen=True)
class Axis:
    """One size of a call; the others are fixed."""

    name: str
    shapes: Callable[[int], Shapes]
    """Value → the inputs of a call."""
    largest: int


@dataclass(frozen=True)
class Code:
    """A compiled kernel of a file."""

    program: Program
    binary: Binary
    entry: str
    """The kernel's name in the launch line."""


def find_boundaries(
    kernel: KernelFile, codes: Sequence[Code], axis: Axis, one_way: Collection[tuple[str, int]] = ()
) -> tuple[Boundary, ...]:
    """Return the boundaries along one size, in rising order; `kernel` has the macros that `codes` were compiled with.

    `one_way` are lines, as absolute path and number, whose branches went one way so far: there every thread counts.
    """
    planned = _Planned(kernel, axis)
    values = [value for value in _ladder(axis.largest, _constants(codes)) if planned.at(value)]
    found = {(value, planned.place(value)) for value in _changes(values, planned)}
    for code in codes:
        found |= {(value, user_place(place)) for value, place in _of_code(code, planned, values, one_way)}
    lines = sorted({(value, place.file if place else "", place.line if place else 0) for value, place in found})
    return tuple(Boundary(axis.name, *each) for each in lines)


class _Planned:
    """What is launched at each value of an axis, computed once."""

    def __init__(self, kernel: KernelFile, axis: Axis) -> None:
        self.kernel, self.axis = kernel, axis
        self.arrays = {line.name: np.empty(0) for line in kernel.lines.arrays}
        self._known: dict[int, tuple[PlannedLaunch, ...]] = {}

    def at(self, value: int) -> tuple[PlannedLaunch, ...]:
        """Return the launches; empty where the launch lines refuse the sizes."""
        if value not in self._known:
            try:
                self._known[value] = self.kernel.launches_at(self.axis.shapes(value))
            except WeftError:
                self._known[value] = ()
        return self._known[value]

    def key(self, value: int) -> Hashable:
        """Return a key of the code that runs."""
        launches = self.at(value)
        macros = tuple(launches[0].bound.defines.items()) if launches and not self.kernel.source.is_triton else ()
        return tuple((launch.line.line, launch.entry) for launch in launches), macros

    def place(self, value: int) -> Place | None:
        launches = self.at(value)
        return Place(self.kernel.lines_path, launches[0].line.line) if launches else None


def _ladder(largest: int, constants: Iterable[int]) -> list[int]:
    """Return powers of two, values between them, and the constants of the code with their neighbours."""
    steps = {1, 2, 3, 5, 7}
    power = 4
    while power <= largest:
        steps |= {power, power + 1, power + power // 2}
        power *= 2
    steps |= {near for constant in constants for near in (constant - 1, constant, constant + 1)}
    return sorted(step for step in steps if 1 <= step <= largest)


def _constants(codes: Sequence[Code]) -> set[int]:
    """Return the literals in comparisons: a test for equality changes only at that value, not on either side of it."""
    return {
        operand.value
        for code in codes
        for block in code.program.source.passes.cfg.blocks
        for ins in block.body
        if ins.facts.compares
        for operand in ins.operands
        if isinstance(operand, Imm) and operand.value > 1
    }


def _changes(values: Sequence[int], planned: _Planned) -> Iterator[int]:
    """Yield the values at which launch lines choose other code; none if they do so at every value."""
    what = planned.key
    gaps = [(low, high) for low, high in pairwise(values) if what(low) != what(high)]
    if len(gaps) > MOST_CHANGES:
        return
    for low, end in gaps:
        while what(low) != what(end):
            high = end
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if what(middle) == what(low) else (low, middle)
            yield high
            low = high


def _of_code(
    code: Code, planned: _Planned, values: Sequence[int], one_way: Collection[tuple[str, int]]
) -> Iterator[tuple[int, Place | None]]:
    """Yield the boundaries of a compiled kernel: gaps in which a comparison changes are divided until they close."""
    gaps: dict[tuple[int, int, int], Place | None] = {}
    for compared in _compared(code, planned, values, one_way):
        gaps |= dict.fromkeys(compared.gaps(), compared.place)
    while gaps:
        for line, _, high in [gap for gap in gaps if gap[2] - gap[1] == 1]:
            yield high, gaps[line, high - 1, high]
        wide = [gap for gap in gaps if gap[2] - gap[1] > 1]
        points = sorted({point for _, low, high in wide for point in _divided(low, high)})
        gaps = {}
        for compared in _compared(code, planned, points, one_way) if points else ():
            for line, low, high in compared.gaps():
                if any(line == gap[0] and gap[1] <= low and high <= gap[2] for gap in wide):
                    gaps[line, low, high] = compared.place


def _divided(low: int, high: int) -> set[int]:
    return {low, high, *(low + (high - low) * piece // PIECES for piece in range(1, PIECES))}


@dataclass(frozen=True)
class _Compared:
    """A comparison in a series of calls."""

    line: int
    place: Place | None
    values: Sequence[int]
    outcomes: tuple[Outcomes, ...]
    """One for each of THREADS."""
    any_thread: bool
    """Whether one thread's outcome counts: it compares an index with a literal, or its branch went one way so far."""

    def gaps(self) -> Iterator[tuple[int, int, int]]:
        """Yield the line and the two values between which the outcome changes.

        A comparison with the same outcome in all threads is about sizes. Where threads differ, it is about a thread's
        index (`row < SQ`).
        """
        if all(np.array_equal(self.outcomes[0], other) for other in self.outcomes[1:]):
            yield from self._changes(self.outcomes[0], MOST_CHANGES)
        elif self.any_thread:
            for outcome in self.outcomes:
                yield from self._changes(outcome, 1)

    def _changes(self, outcome: Outcomes, most: int) -> Iterator[tuple[int, int, int]]:
        changed = np.flatnonzero(outcome[1:] != outcome[:-1])
        if len(changed) <= most:
            for number in changed:
                yield self.line, self.values[int(number)], self.values[int(number) + 1]


def _compared(
    code: Code, planned: _Planned, values: Sequence[int], one_way: Collection[tuple[str, int]]
) -> Iterator[_Compared]:
    """Yield every comparison, once per iteration of a loop."""
    launched = [(value, launch) for value in values for launch in planned.at(value) if launch.entry == code.entry]
    passed = [(value, launch, params) for value, launch in launched if (params := _params(code, launch, planned))]
    if len(passed) < 2:
        return
    launches = _launches([launch for _, launch, _ in passed], [params for _, _, params in passed])
    offsets = {name: offset for name, offset, _ in code.program.plan.params}
    at = [value for value, _, _ in passed]
    for compared in compare_sizes(code.program.source.passes.cfg, offsets, launches):
        if compared.place is not None and not compared.place.line:
            continue  # added by the compiler: the remainder of an unrolled loop
        parts = tuple(np.split(compared.outcomes, len(THREADS)))
        place = user_place(compared.place)
        still_open = place is not None and (os.path.abspath(place.file), place.line) in one_way
        yield _Compared(compared.line, compared.place, at, parts, compared.literal or still_open)


def _params(code: Code, launch: PlannedLaunch, planned: _Planned) -> bytes:
    """Return the parameter block of a launch; empty where an argument does not fit: nothing would be launched."""
    try:
        arguments = launch.arguments(code.binary, planned.arrays)
        return pack_parameters(code.program.plan.params, arguments, lambda *_: 1 << 32)
    except WeftError:
        return b""


def _launches(launched: Sequence[PlannedLaunch], params: Sequence[bytes]) -> Launches:
    """Return all launches once for each of THREADS."""
    blocks = [np.frombuffer(block, np.uint8) for block in params]
    grids = np.array([launch.grid for launch in launched], np.int64)
    sizes = np.array([launch.block for launch in launched], np.int64)
    specials: dict[str, list[Values]] = {}
    for thread in THREADS:
        ctas = grids - 1 if thread != "first" else 0 * grids
        threads = sizes - 1 if thread == "last" else 0 * sizes
        for name, numbers in (("ctaid", ctas), ("nctaid", grids), ("tid", threads), ("ntid", sizes)):
            for axis, letter in enumerate("xyz"):
                specials.setdefault(f"%{name}.{letter}", []).append(numbers[:, axis])
    return Launches(
        np.concatenate([np.stack(blocks)] * len(THREADS)),
        {name: np.concatenate(parts) for name, parts in specials.items()},
    )
