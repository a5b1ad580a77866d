"""What the `// weft:` lines of a CUDA file say, as values. Formulas are kept as they stand."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .expressions import Expression


@dataclass(frozen=True)
class Initialiser:
    """How an array is filled when nobody gives it. `bounds` only for `uniform(low, high)`."""

    name: str
    bounds: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class ArrayLine:
    """One array or `__constant__` variable; a line that declares several makes several of these."""

    role: str
    name: str
    element: str
    shape: tuple[Expression, ...]
    initialiser: Initialiser | None
    line: int


@dataclass(frozen=True)
class ScalarLine:
    """`scale : f32 = 1 / sqrt(D)`"""

    name: str
    element: str
    value: Expression
    line: int


@dataclass(frozen=True)
class DefineLine:
    """`TILE = 64`, or `ELEMENT = "half"` for text that is no number."""

    name: str
    value: Expression | str
    line: int


@dataclass(frozen=True)
class Struct:
    """`{a, b, n}`: a struct passed by value."""

    members: tuple[Expression, ...]


Argument = Expression | Struct


@dataclass(frozen=True)
class LaunchLine:
    """One kernel launch. `callee` is a list of text and formulas that make the name expression."""

    callee: tuple[str | Expression, ...]
    arguments: tuple[Argument, ...]
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression | None
    opt_in_shared: bool
    line: int
    when: Expression | None = None
    """The launch is left out where this is 0 or false."""

    @property
    def name(self) -> str:
        """The kernel's name without template arguments."""
        first = self.callee[0]
        assert isinstance(first, str)
        return first.partition("<")[0].strip()

    def formulas(self) -> Iterator[Expression]:
        """Every formula of the line that must be a number, so no bare argument."""
        yield from (part for part in self.callee if isinstance(part, Expression))
        yield from (*self.grid, *self.block)
        yield from (formula for formula in (self.shared, self.when) if formula)

    def passed(self) -> Iterator[Expression]:
        """Every argument, members of structs included."""
        for argument in self.arguments:
            yield from argument.members if isinstance(argument, Struct) else (argument,)


@dataclass(frozen=True)
class LaunchLines:
    """All lines of a file, in its order."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    arrays: tuple[ArrayLine, ...] = ()
    scalars: tuple[ScalarLine, ...] = ()
    defines: tuple[DefineLine, ...] = ()
    launches: tuple[LaunchLine, ...] = ()
    options: tuple[str, ...] = ()
    """Of the compiler, as they stand."""
