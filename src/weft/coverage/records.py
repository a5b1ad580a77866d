"""Coverage records: what a kernel's runs executed, in lines of its source."""

from collections.abc import Mapping
from dataclasses import dataclass
from os.path import abspath
from typing import Any


@dataclass(frozen=True, order=True)
class Line:
    """A line that has code in some compiled kernel."""

    file: str
    number: int
    runs: int
    """How often warps executed it; 0: never."""


@dataclass(frozen=True, order=True)
class Branch:
    """A branch of a line: an if, a loop, a conditional expression that was compiled to one."""

    file: str
    line: int
    both_ways: bool
    loops: bool
    """Whether it is a loop's branch: one side starts another iteration."""


@dataclass(frozen=True)
class Boundary:
    """A size at which the kernel takes another path: something changes between `value` - 1 and `value`."""

    axis: str
    """B, heads, group, SQ, SKV, S or D."""
    value: int
    file: str = ""
    line: int = 0
    why_not: str = ""
    """Why no workload was run there; empty if one was run on either side."""

    def __str__(self) -> str:
        return f"{self.axis} = {self.value}"


@dataclass(frozen=True)
class Coverage:
    """The coverage of all runs together."""

    lines: tuple[Line, ...] = ()
    branches: tuple[Branch, ...] = ()
    boundaries: tuple[Boundary, ...] = ()

    @property
    def known(self) -> bool:
        """Whether anything was counted: not every engine counts visits."""
        return bool(self.lines)

    @property
    def never(self) -> tuple[Line, ...]:
        """The lines that no run executed."""
        return tuple(line for line in self.lines if not line.runs)

    @property
    def one_way(self) -> tuple[Branch, ...]:
        """The branches that always went the same way, including loops without a second iteration."""
        missed = {(line.file, line.number) for line in self.never}
        return tuple(
            branch for branch in self.branches if not branch.both_ways and (branch.file, branch.line) not in missed
        )

    @property
    def open_lines(self) -> frozenset[tuple[str, int]]:
        """The absolute path and line of the branches that always went the same way."""
        return frozenset((abspath(branch.file), branch.line) for branch in self.one_way)

    def to_record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "lines": [[line.file, line.number, line.runs] for line in self.lines],
            "branches": [[branch.file, branch.line, branch.both_ways, branch.loops] for branch in self.branches],
            "boundaries": [
                {"axis": each.axis, "value": each.value, "file": each.file, "line": each.line, "why_not": each.why_not}
                for each in self.boundaries
            ],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Coverage":
        """Read what `to_record` returned; raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            tuple(Line(str(file), int(number), int(runs)) for file, number, runs in record["lines"]),
            tuple(Branch(str(file), int(at), bool(both), bool(back)) for file, at, both, back in record["branches"]),
            tuple(_boundary_of(each) for each in record["boundaries"]),
        )


def _boundary_of(record: Mapping[str, Any]) -> Boundary:
    place = (str(record["file"]), int(record["line"]))
    return Boundary(str(record["axis"]), int(record["value"]), *place, why_not=str(record["why_not"]))
