"""The levers of a kernel file, the combinations that are possible, and the changes between two of them.

Weft's files with levers are listed here, with the points of the rungs of the ladder.
"""

import re
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
from weft.kernels.ladder import RUNGS

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
"""Rung → its family, and the point that computes the same in the same order."""


@dataclass(frozen=True)
class Point:
    """One value for every lever of a space, in its order."""

    values: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> "Point":
        """Read the result of `text`."""
        pairs = [item.partition("=") for item in text.split()]
        if not all(name and value for name, _, value in pairs):
            raise UsageError(f"{text!r} is not of the form `BLOCK_M=32 COPY=async`")
        return cls(tuple((name, value) for name, _, value in pairs))

    def __getitem__(self, lever: str) -> str:
        return self.defines[lever]

    @property
    def defines(self) -> dict[str, str]:
        """Return the values as macros."""
        return dict(self.values)

    @property
    def text(self) -> str:
        """Return `BLOCK_M=32 COPY=async`."""
        return " ".join(f"{name}={value}" for name, value in self.values)

    def moved(self, values: Mapping[str, str]) -> "Point":
        """Return the point with other values of some levers."""
        return Point(tuple((name, values.get(name, value)) for name, value in self.values))


@dataclass(frozen=True)
class Change:
    """The change of one lever between two points."""

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
        """Return the point of the file's default values."""
        return Point(tuple((lever.name, lever.default) for lever in self.levers))

    def refusal(self, point: Point, *, sizes: Mapping[str, int] = {}) -> str | None:
        """Return why the combination is not possible, or None. Nothing is compiled; `sizes` override the file's."""
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
        """Yield every possible point, in the order of the lines."""
        for values in product(*(lever.values for lever in self.levers)):
            point = Point(tuple(zip((lever.name for lever in self.levers), values, strict=True)))
            if self.refusal(point) is None:
                yield point

    def count(self) -> int:
        """Return the number of possible points: levers that no `require` reads multiply the number of the others."""
        read = frozenset().union(*(self.reads(require) for require in self.lines.requires))
        free = prod(len(lever.values) for lever in self.levers if lever.name not in read)
        bound = [lever for lever in self.levers if lever.name in read]
        possible = 0
        for values in product(*(lever.values for lever in bound)):
            chosen = dict(zip((lever.name for lever in bound), values, strict=True))
            possible += self.refusal(self.default.moved(chosen)) is None
        return possible * free

    def changes(self, before: Point, after: Point) -> tuple[Change, ...]:
        """Return the differences of two points, in the order of the lines."""
        return tuple(
            Change(lever.name, before[lever.name], after[lever.name])
            for lever in self.levers
            if before[lever.name] != after[lever.name]
        )

    def reads(self, require: RequireLine) -> frozenset[str]:
        """Return the levers that a line depends on, including those of the scalars that it reads."""
        names = require.formula.names | (require.when.names if require.when else frozenset())
        for scalar in reversed(self.lines.scalars):
            if scalar.name in names:
                names |= scalar.value.names
        return frozenset(lever.name for lever in self.levers if names & {lever.name, *lever.words})


def space_of(path: Path) -> Space:
    """Return the space of a CUDA file with `lever` lines; raise UsageError if it has none."""
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    return _space(path, source)


def rung_source(name: str) -> str:
    """Return the text of a rung, with the head dimensions that the ladder's table lists as a `require` line.

    A search judges a text by itself: without the line, a head dimension that the code refuses fails the whole check.
    """
    rung = RUNGS[name]
    lines = rung.path.read_text().splitlines(keepends=True)
    if rung.largest_d is not None:
        after = 1 + max(at for at, line in enumerate(lines) if line.startswith("// weft:"))
        lines.insert(after, f"// weft: require D <= {rung.largest_d} : the rung takes D up to {rung.largest_d}\n")
    return "".join(lines)


def rung_space(name: str) -> Space:
    """Return the space of a rung: its `define` lines that the ladder's table lists as levers become `lever` lines."""
    rung, source = RUNGS[name], rung_source(name)
    for lever, values in rung.levers.items():
        line = re.compile(rf"^(// weft: )define( +){lever} = .*$", re.MULTILINE)
        source = line.sub(rf"\g<1>lever \g<2>{lever} = {values[0]} in {', '.join(values)}", source)
    return _space(rung.path, source)


def _space(path: Path, source: str) -> Space:
    lines = parse_lines(source, str(path))
    if not lines.levers:
        raise UsageError(f"{path} has no `// weft: lever` line; docs/reference/launch_lines.md shows one")
    check_directives(source, str(path), lines.levers)
    space = Space(path, source, lines)
    refused = space.refusal(space.default)
    if refused is not None:
        raise UsageError(f"{path}: its default values are not possible: {refused}")
    return space


@lru_cache
def family(task: str) -> Space:
    """Return the space of a task's kernels."""
    return space_of(FAMILIES[task])


def start_of(rung: str) -> Point:
    """Return the point of a rung in its family."""
    return Point.parse(STARTS[rung][1])


def start_space(start: str) -> tuple[Space, Point]:
    """Return the space in which a search from a rung or a file moves, and the point that it starts from."""
    if start in STARTS:
        return family(STARTS[start][0]), start_of(start)
    space = rung_space(start) if start in RUNGS else space_of(Path(start))
    return space, space.default
