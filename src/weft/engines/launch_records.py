"""The `// weft:` lines of a CUDA file as values. Formulas are kept as written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from weft.core.chips import chips, target_of
from weft.core.errors import UsageError

from .expressions import Expression, Number


@dataclass(frozen=True)
class Initialiser:
    """How an array is filled when the caller does not pass it. `bounds` only for `uniform(low, high)`."""

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

    @property
    def text(self) -> str:
        """The line without its initialiser: `q : f16[B, S, D]`."""
        return f"{self.name} : {self.element}[{', '.join(size.text for size in self.shape)}]"


@dataclass(frozen=True)
class ScalarLine:
    """`scale : f32 = 1 / sqrt(D)`"""

    name: str
    element: str
    value: Expression
    line: int


@dataclass(frozen=True)
class DefineLine:
    """`TILE = 64`, or `ELEMENT = "half"` for text that is not a number."""

    name: str
    value: Expression | str
    line: int


@dataclass(frozen=True)
class LeverLine:
    """`BLOCK_M = 64 in 32, 64, 128 : queries of a CTA`: the values a define may have, all numbers or all words."""

    name: str
    default: str
    values: tuple[str, ...]
    about: str
    line: int

    @property
    def words(self) -> dict[str, str]:
        """Macros of a lever of words: `COPY = plain in plain, async` defines COPY_plain and COPY_async as 1 or 0."""
        return {} if self.values[0].isdecimal() else {f"{self.name}_{value}": value for value in self.values}


@dataclass(frozen=True)
class RequireLine:
    """`16 * WARPS <= BLOCK_M when PRODUCT_mma : a warp owns 16 rows`"""

    formula: Expression
    when: Expression | None
    reason: str
    line: int

    @property
    def text(self) -> str:
        """The line without its reason."""
        return f"require {self.formula.text}" + (f" when {self.when.text}" if self.when else "")

    def broken(self, names: Mapping[str, Number | str]) -> str:
        """Return why these numbers break the condition; empty if they do not."""
        if self.when is not None and not self.when.value(names):
            return ""
        if self.formula.value(names):
            return ""
        read = self.formula.names | (self.when.names if self.when else frozenset())
        values = ", ".join(f"{name} is {names[name]}" for name in sorted(read))
        return f"`{self.formula.text}` does not hold: {values}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Struct:
    """`{a, b, n}`: a struct passed by value."""

    members: tuple[Expression, ...]


@dataclass(frozen=True)
class MapArgument:
    """`tensormap(q, box=(64, 64), swizzle=128)`: a tensor map passed by value (`map_arguments.py`)."""

    text: str
    array: str
    box: tuple[Expression, ...]
    shape: tuple[Expression, ...]
    """The dimensions, if they are not the array's."""
    swizzle: Expression | None
    nan: bool

    @property
    def members(self) -> tuple[Expression, ...]:
        """Return the array and the formulas."""
        swizzle = () if self.swizzle is None else (self.swizzle,)
        return (Expression.parse(self.array), *self.box, *self.shape, *swizzle)


Argument = Expression | Struct | MapArgument


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
    """The launch is skipped where this is 0 or false."""
    cluster: tuple[Expression, ...] = ()
    """CTAs per cluster; empty: as the kernel requires."""

    @property
    def name(self) -> str:
        """The kernel's name without template arguments."""
        first = self.callee[0]
        assert isinstance(first, str)
        return first.partition("<")[0].strip()

    def formulas(self) -> Iterator[Expression]:
        """Yield every formula of the line that must be a number; plain arguments are not included."""
        yield from (part for part in self.callee if isinstance(part, Expression))
        yield from (*self.grid, *self.block, *self.cluster)
        yield from (formula for formula in (self.shared, self.when) if formula)

    def passed(self) -> Iterator[Expression]:
        """Yield every argument, members of structs and the parts of tensor maps included."""
        for argument in self.arguments:
            yield from (argument,) if isinstance(argument, Expression) else argument.members


@dataclass(frozen=True)
class LinkLine:
    """`helpers.cu`: another file of the program; a line that names several makes several of these."""

    file: str
    line: int


@dataclass(frozen=True)
class NondeterministicLine:
    """`nondeterministic dq : atomicAdd in the order of the CTAs`: outputs whose last bits depend on the order."""

    names: tuple[str, ...]
    why: str
    line: int


@dataclass(frozen=True)
class LaunchLines:
    """All lines of a file, in order."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    arrays: tuple[ArrayLine, ...] = ()
    scalars: tuple[ScalarLine, ...] = ()
    defines: tuple[DefineLine, ...] = ()
    launches: tuple[LaunchLine, ...] = ()
    options: tuple[str, ...] = ()
    """Compiler options, as written."""
    levers: tuple[LeverLine, ...] = ()
    """Each lever also has a define of its name."""
    requires: tuple[RequireLine, ...] = ()
    links: tuple[LinkLine, ...] = ()
    nondeterministic: tuple[NondeterministicLine, ...] = ()
    gpu: str = ""
    """The GPU that the file is for; empty: any."""

    def require_gpu(self, chosen: str, file: str) -> None:
        """Raise UsageError if the chosen GPU or architecture runs other code than the GPU that the file is for."""
        if self.gpu and target_of(chosen) != target_of(self.gpu):
            needed, same = target_of(self.gpu), [name for name in chips() if target_of(name) == target_of(self.gpu)]
            raise UsageError(f"{file} is for {needed}, not for {chosen}: choose one of {', '.join(same)}")
