"""The results of a profiled launch: frozen values between the stages of this package."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from weft.core.records import Place


@dataclass(frozen=True)
class SourceLine:
    """The cost of one PTX instruction that accesses memory, over the launch."""

    ptx_line: int
    opcode: str
    place: Place | None
    executed: int
    """Warp accesses with an active lane, at the width of the SASS where it is matched."""
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    tags: int = 0
    matched: bool = True
    lane_bytes: int = 0
    """Bytes that a lane moves, at the same width."""

    def times(self, factor: int) -> "SourceLine":
        """Return the same for `factor` times as many CTAs."""
        names = ("executed", "wavefronts", "ideal", "sectors", "tags")
        return replace(self, **{name: factor * getattr(self, name) for name in names})

    @property
    def excess(self) -> int:
        """Shared wavefronts that a layout without bank conflicts would not need."""
        return self.wavefronts - self.ideal


@dataclass(frozen=True)
class Counts:
    """All counts of one launch. A counter has ncu's name only where meaning and value are the same."""

    sass: Mapping[str, int]
    """Warp instructions issued, by SASS opcode ("HMMA.16816.F32", "FFMA", "LDS.128"): those of a block × its runs.

    An instruction whose predicate is false in all lanes is issued too; "@!PT LDS" instructions never have an effect.
    """
    ncu: Mapping[str, int]
    """Counters under ncu's names."""
    vm: Mapping[str, int]
    """Weft's counters: at PTX level, or with a meaning that ncu does not have."""
    matched: float
    """Share of the executed shared and global accesses that are matched to SASS."""
    lines: tuple[SourceLine, ...] = ()
    """The instructions that access shared or global memory, in PTX order."""
    notes: tuple[str, ...] = ()
    """What could not be matched or counted, as sentences."""
    issued: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """`sass` by the PTX line it comes from; 0 where ptxas does not record it."""
    places: Mapping[int, Place | None] = field(default_factory=dict)
    """PTX line → source line."""

    def times(self, factor: int) -> "Counts":
        """Return the counts of `factor` times as many CTAs that all do the same.

        Distinct sectors are left out: CTAs may share them.
        """
        return replace(
            self,
            sass=_times(self.sass, factor),
            ncu=_times(self.ncu, factor),
            vm=_times({name: n for name, n in self.vm.items() if not name.startswith("vm__distinct_")}, factor),
            lines=tuple(line.times(factor) for line in self.lines),
            issued={line: _times(opcodes, factor) for line, opcodes in self.issued.items()},
        )


def _times(counters: Mapping[str, int], factor: int) -> dict[str, int]:
    return {name: factor * count for name, count in counters.items()}
