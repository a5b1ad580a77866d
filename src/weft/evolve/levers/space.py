"""The levers of a kernel file: which there are, which combinations are possible, and what lies between two of them.

Weft's own files with levers are listed here, with the points at which rungs of the ladder lie in them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from pathlib import Path
from types import MappingProxyType

from weft.core.errors import LaunchError, UsageError
from weft.engines.bind import bind_numbers
from weft.engines.launch_lines import parse_lines
from weft.engines.launch_records import LaunchLines, LeverLine, RequireLine

from .conditions import check_directives

FAMILIES: Mapping[str, Path] = MappingProxyType({"sdpa": Path(__file__).with_name("sdpa.cu")})
"""Task → its file."""
STARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "wmma": (
            "sdpa",
            "PRODUCT=wmma BLOCK_M=32 BLOCK_N=32 WARPS=4 COPY=plain STAGES=1 LAYOUT=padded Q_AT=shared EXP=exp "
            "RESCALE=always TAIL=every",
        ),
    }
)
"""Rung → its family, and the point that does the same in the same order."""


@dataclass(frozen=True)
class Point:
    """One value for every lever of a space, in its order."""

    values: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> "Point":
        """What `text` wrote."""
        pairs = [item.partition("=") for item in text.split()]
        if not all(name and value for name, _, value in pairs):
            raise UsageError(f"{text!r} is not of the form `BLOCK_M=32 COPY=async`")
        return cls(tuple((name, value) for name, _, value in pairs))

    def __getitem__(self, lever: str) -> str:
        return self.defines[lever]

    @property
    def defines(self) -> dict[str, str]:
        """As macros."""
        return dict(self.values)

    @property
    def text(self) -> str:
        """`BLOCK_M=32 COPY=async`"""
        return " ".join(f"{name}={value}" for name, value in self.values)

    def moved(self, values: Mapping[str, str]) -> "Point":
        """The same with other values of some levers."""
        return Point(tuple((name, values.get(name, value)) for name, value in self.values))


@dataclass(frozen=True)
class Change:
    """One lever between two points."""

    lever: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.lever} {self.before} → {self.after}"


@dataclass(frozen=True)
class Space:
    """A kernel file with `lever` lines."""

    path: Path
    source: str
    lines: LaunchLines

    @property
    def levers(self) -> tuple[LeverLine, ...]:
        return self.lines.levers

    @property
    def default(self) -> Point:
        """As the file stands."""
        return Point(tuple((lever.name, lever.default) for lever in self.levers))

    def refusal(self, point: Point, *, sizes: Mapping[str, int] = {}) -> str | None:
        """Why the combination is not possible, or None. Nothing is compiled; `sizes` are the file's unless given."""
        known = {lever.name: lever.values for lever in self.levers}
        if [name for name, _ in point.values] != list(known):
            return f"{self.path.name} has the levers {', '.join(known)}; given are {point.text}"
        for name, value in point.values:
            if value not in known[name]:
                return f"{name} is {value}; {self.path.name} has {', '.join(known[name])}"
        try:
            bind_numbers(self.lines, self.path.name, sizes=sizes, defines=point.defines)
        except (LaunchError, UsageError) as error:
            return str(error)
        return None

    def points(self) -> Iterator[Point]:
        """Every possible one, in the order of the lines."""
        for values in product(*(lever.values for lever in self.levers)):
            point = Point(tuple(zip((lever.name for lever in self.levers), values, strict=True)))
            if self.refusal(point) is None:
                yield point

    def count(self) -> int:
        """How many points are possible: levers that no `require` reads multiply what the others leave."""
        read = frozenset().union(*(self.reads(require) for require in self.lines.requires))
        free = prod(len(lever.values) for lever in self.levers if lever.name not in read)
        bound = [lever for lever in self.levers if lever.name in read]
        possible = 0
        for values in product(*(lever.values for lever in bound)):
            chosen = dict(zip((lever.name for lever in bound), values, strict=True))
            possible += self.refusal(self.default.moved(chosen)) is None
        return possible * free

    def changes(self, before: Point, after: Point) -> tuple[Change, ...]:
        """Where two points differ, in the order of the lines."""
        return tuple(
            Change(lever.name, before[lever.name], after[lever.name])
            for lever in self.levers
            if before[lever.name] != after[lever.name]
        )

    def reads(self, require: RequireLine) -> frozenset[str]:
        """The levers on which it hangs whether a line holds; those that a scalar reads, if it reads one."""
        names = require.formula.names | (require.when.names if require.when else frozenset())
        for scalar in reversed(self.lines.scalars):
            if scalar.name in names:
                names |= scalar.value.names
        return frozenset(lever.name for lever in self.levers if names & {lever.name, *lever.words})


def space_of(path: Path) -> Space:
    """The space of a CUDA file with `lever` lines; raises UsageError if it has none."""
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    lines = parse_lines(source, str(path))
    if not lines.levers:
        raise UsageError(f"{path} has no `// weft: lever` line; docs/reference/launch_lines.md shows one")
    check_directives(source, str(path), lines.levers)
    space = Space(path, source, lines)
    refused = space.refusal(space.default)
    if refused is not None:
        raise UsageError(f"{path}: its own values are not possible: {refused}")
    return space


@lru_cache
def family(task: str) -> Space:
    """The space of a task's kernels."""
    if task not in FAMILIES:
        raise UsageError(f"no family of kernels for task {task!r}: there is one for {', '.join(FAMILIES)}")
    return space_of(FAMILIES[task])


def start_of(rung: str) -> Point:
    """Where a rung lies in the space of its task."""
    if rung not in STARTS:
        raise UsageError(f"rung {rung} is no point of a family: {', '.join(STARTS)}; or give a file with `lever` lines")
    return Point.parse(STARTS[rung][1])
