"""The cost of each source line: cycles of an SM by unit, the costliest line first."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.core.chips import Chip
from weft.core.records import Place
from weft.engines.kernel_file import KernelFile
from weft.engines.spell_findings import user_place
from weft.model.bounds import sm_cycles
from weft.model.occupancy import LaunchShape
from weft.model.work import Memory, Work, instructions_of

from .records import Counts, SourceLine

LOCAL = frozenset(["LDL", "STL"])
SECTORS_PER_CLOCK = 2
"""Sectors from L2 to an SM per clock: 64 bytes."""


@dataclass(frozen=True)
class LineCost:
    """One source line over a launch."""

    place: Place | None
    cycles: float
    """Cycles of its busiest unit, if the work were spread evenly over the SMs."""
    unit: str
    """The busiest unit: tensor, fma, alu, mufu, issue, lsu, smem, tags, sectors."""
    sass: Mapping[str, int]
    """Warp instructions issued, by opcode."""
    accesses: tuple[SourceLine, ...] = field(default=())
    """Its instructions that access shared or global memory."""

    @property
    def instructions(self) -> int:
        return sum(self.sass.values())

    @property
    def executed(self) -> int:
        """Accesses to memory with an active lane."""
        return sum(access.executed for access in self.accesses)

    @property
    def wavefronts(self) -> int:
        return sum(access.wavefronts for access in self.accesses)

    @property
    def excess(self) -> int:
        return sum(access.excess for access in self.accesses)

    @property
    def sectors(self) -> int:
        return sum(access.sectors for access in self.accesses)

    @property
    def local(self) -> int:
        """Accesses to local memory: spills, or arrays that registers cannot hold."""
        return sum(count for opcode, count in self.sass.items() if opcode.partition(".")[0] in LOCAL)


def line_costs(counts: Counts, launch: LaunchShape, chip: Chip, kernel: KernelFile) -> tuple[LineCost, ...]:
    """Return every source line, with the path as the user gives it."""
    sass: dict[Place | None, Counter[str]] = {}
    accesses: dict[Place | None, list[SourceLine]] = {}
    for ptx_line, opcodes in counts.issued.items():
        sass.setdefault(_line_of(counts.places.get(ptx_line), kernel), Counter()).update(opcodes)
    for access in counts.lines:
        if access.executed or access.wavefronts or access.sectors:
            accesses.setdefault(_line_of(access.place, kernel), []).append(access)
    found = [
        _cost(place, sass.get(place, Counter()), accesses.get(place, []), launch, chip)
        for place in {**sass, **accesses}
    ]
    return tuple(sorted(found, key=lambda line: -line.cycles))


def _line_of(place: Place | None, kernel: KernelFile) -> Place | None:
    at = user_place(place)
    if at is None:
        return None
    return Place(kernel.path if at.file == os.path.abspath(kernel.path) else at.file, at.line)


def _cost(
    place: Place | None, sass: Mapping[str, int], accesses: list[SourceLine], launch: LaunchShape, chip: Chip
) -> LineCost:
    line = LineCost(place, 0, "", dict(sass), tuple(accesses))
    work = Work(
        launch,
        instructions_of(sass, accesses=line.executed + line.local),
        Memory(shared_wavefronts=line.wavefronts),
    )
    busy = sm_cycles(work, chip)
    busy["tags"] = sum(access.tags for access in accesses)
    busy["sectors"] = line.sectors / SECTORS_PER_CLOCK
    unit = max(busy, key=busy.__getitem__)
    return replace(line, cycles=busy[unit] / chip.sms, unit=unit)
