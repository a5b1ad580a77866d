"""Values of host code, as far as launch lines can express them: formulas over sizes, tensors, pointers, kernels."""

import ast
import keyword
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.engines.expressions import FUNCTIONS


@dataclass(frozen=True)
class Number:
    """A formula of launch lines."""

    tree: ast.expr
    floating: bool = False

    @property
    def constant(self) -> int | float | None:
        """Its value, if it is a literal."""
        if isinstance(self.tree, ast.Constant) and isinstance(self.tree.value, int | float):
            return self.tree.value
        return None

    @property
    def name(self) -> str:
        """Its name, if it is only a name."""
        return self.tree.id if isinstance(self.tree, ast.Name) else ""

    @property
    def text(self) -> str:
        return ast.unparse(self.tree)


@dataclass(eq=False)
class Tensor:
    """Memory with a name. `origin` is argument, empty, zeros, ones or computed (by PyTorch, not by a kernel)."""

    name: str
    origin: str
    line: int
    element: str = ""
    """Name in launch lines; empty: not known."""
    shape: tuple[Number, ...] | None = None
    like: "Tensor | None" = None
    """The tensor whose shape it has."""
    base: "Tensor | None" = None
    """The tensor whose memory a view shares."""
    returned: bool = False
    bytes: Number | None = None
    """The argument of cudaMalloc, until a pointer's type gives the element type."""

    @property
    def memory(self) -> "Tensor":
        return self.base.memory if self.base else self


@dataclass(frozen=True)
class Pointer:
    """The address of a tensor's first element, as a pointer to a C++ type."""

    tensor: Tensor
    type: str = ""


@dataclass(frozen=True)
class Sizes:
    """`x.sizes()`"""

    tensor: Tensor


@dataclass(frozen=True)
class Rank:
    """`x.dim()`"""

    tensor: Tensor


@dataclass(frozen=True)
class Type:
    """A dtype, or tensor options with one; `of` is the tensor it belongs to."""

    element: str
    of: Tensor | None = None


@dataclass(frozen=True)
class Dim3:
    """A grid or a block."""

    sizes: tuple["Number | Hole", ...]


@dataclass(frozen=True)
class Items:
    """`{a, b, c}`"""

    values: tuple["Value", ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel as an expression, with its template arguments as launch lines spell them."""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostFunction:
    """A function of the file as an expression, with its template arguments."""

    name: str
    targets: tuple[tuple[str, "Value"], ...] = ()


@dataclass(frozen=True)
class Record:
    """A struct of the file: its members in order, as far as they have values."""

    type: str
    members: tuple[tuple[str, "Value"], ...] = ()

    def get(self, name: str) -> "Value | None":
        return dict(self.members).get(name)

    def put(self, name: str, value: "Value") -> "Record":
        return Record(self.type, tuple({**dict(self.members), name: value}.items()))


@dataclass(frozen=True)
class Lambda:
    """Its parameters, and the tokens between the braces of its body."""

    parameters: tuple[str, ...]
    start: int
    end: int
    scope: "Scope"


@dataclass(frozen=True)
class Hole:
    """A value that cannot be followed, why, and its line."""

    why: str
    line: int


@dataclass(frozen=True)
class Other:
    """A value that launch lines do not need: streams, devices, guards, strings."""


Value = (
    Number
    | Tensor
    | Pointer
    | Sizes
    | Rank
    | Type
    | Dim3
    | Items
    | Kernel
    | HostFunction
    | Record
    | Lambda
    | Hole
    | Other
)


@dataclass
class Scope:
    """Names of the host's variables, and of its types."""

    names: dict[str, Value] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    outer: "Scope | None" = None
    kinds: dict[str, str] = field(default_factory=dict)
    """Variable → the type it is declared with."""

    def find(self, name: str) -> Value | None:
        return self.names[name] if name in self.names else self.outer.find(name) if self.outer else None

    def type(self, name: str) -> str | None:
        return self.types[name] if name in self.types else self.outer.type(name) if self.outer else None

    def kind(self, name: str) -> str:
        return self.kinds[name] if name in self.kinds else self.outer.kind(name) if self.outer else ""

    def assign(self, name: str, value: Value) -> None:
        """Assign in the scope where the name was declared."""
        scope: Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.outer
        (scope or self).names[name] = value

    def flat(self) -> Mapping[str, Value]:
        return {**(self.outer.flat() if self.outer else {}), **self.names}


def safe_name(name: str) -> str:
    """Return the name, with an underscore if formulas reserve it: `in`, `lambda`, `max`."""
    return f"{name}_" if keyword.iskeyword(name) or name in FUNCTIONS else name


def literal(value: int | float) -> Number:
    return Number(ast.Constant(value), isinstance(value, float))


def named(name: str) -> Number:
    return Number(ast.Name(name))


def call(function: str, *arguments: Number, floating: bool = False) -> Number:
    return Number(ast.Call(ast.Name(function), [each.tree for each in arguments], []), floating)


def same(a: Number, b: Number) -> bool:
    return ast.dump(a.tree) == ast.dump(b.tree)


_FOLD: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def binary(operation: type[ast.operator], a: Number, b: Number) -> Number:
    """Return a ∘ b, with constants folded; (n + b - 1) // b becomes cdiv(n, b)."""
    floating = a.floating or b.floating
    if operation is ast.FloorDiv and floating:
        operation = ast.Div
    left, right = a.constant, b.constant
    if left is not None and right is not None and not (operation in (ast.FloorDiv, ast.Div, ast.Mod) and not right):
        folded: int | float = _FOLD[operation](left, right)
        return literal(folded)
    if operation is ast.Mult and 1 in (left, right) and not floating:
        return b if left == 1 else a
    if operation is ast.Mult and 0 in (left, right) and not floating:
        return literal(0)
    if operation in (ast.Add, ast.Sub) and right == 0 and not floating:
        return a
    if operation is ast.FloorDiv and right == 1 and not floating:
        return a
    if operation is ast.FloorDiv:
        match a.tree:
            case ast.BinOp(left=rows, op=ast.Mult(), right=columns) if ast.dump(columns) == ast.dump(b.tree):
                return Number(rows)
        counted = _cdiv(a, b)
        if counted is not None:
            return counted
    return Number(ast.BinOp(a.tree, operation(), b.tree), floating)


_OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
}


def _cdiv(a: Number, b: Number) -> Number | None:
    match a.tree:
        case ast.BinOp(left=ast.BinOp(left=n, op=ast.Add(), right=m), op=ast.Sub(), right=ast.Constant(value=1)):
            if ast.dump(m) == ast.dump(b.tree):
                return call("cdiv", Number(n), b)
            if ast.dump(n) == ast.dump(b.tree):
                return call("cdiv", Number(m), b)
        case ast.BinOp(left=n, op=ast.Add(), right=ast.BinOp(left=m, op=ast.Sub(), right=ast.Constant(value=1))):
            if ast.dump(m) == ast.dump(b.tree):
                return call("cdiv", Number(n), b)
        case ast.BinOp(left=n, op=ast.Add(), right=ast.Constant(value=int() as less)) if b.constant == less + 1:
            return call("cdiv", Number(n), b)
    return None


def compare(operation: type[ast.cmpop], a: Number, b: Number) -> Number:
    left, right = a.constant, b.constant
    if left is not None and right is not None:
        tests = {
            ast.Eq: left == right,
            ast.NotEq: left != right,
            ast.Lt: left < right,
            ast.LtE: left <= right,
            ast.Gt: left > right,
            ast.GtE: left >= right,
        }
        return literal(int(tests[operation]))
    return Number(ast.Compare(a.tree, [operation()], [b.tree]))


def choose(condition: Number, a: Number, b: Number) -> Number:
    """Return `condition ? a : b` as arithmetic: formulas have no conditional."""
    match condition.tree:
        case ast.Compare(left=x, ops=[ast.Lt() | ast.LtE()], comparators=[y]):
            if (ast.dump(x), ast.dump(y)) == (ast.dump(a.tree), ast.dump(b.tree)):
                return call("min", a, b)
            if (ast.dump(x), ast.dump(y)) == (ast.dump(b.tree), ast.dump(a.tree)):
                return call("max", a, b)
        case ast.Compare(left=x, ops=[ast.Gt() | ast.GtE()], comparators=[y]):
            if (ast.dump(x), ast.dump(y)) == (ast.dump(a.tree), ast.dump(b.tree)):
                return call("max", a, b)
            if (ast.dump(x), ast.dump(y)) == (ast.dump(b.tree), ast.dump(a.tree)):
                return call("min", a, b)
    if same(a, b):
        return a
    holds = truth(condition)
    return binary(ast.Add, binary(ast.Mult, a, holds), binary(ast.Mult, b, _opposite(holds)))


def truth(value: Number) -> Number:
    """Return the value as a C++ condition."""
    if value.constant is not None:
        return literal(int(bool(value.constant)))
    return value if _is_truth(value.tree) else compare(ast.NotEq, value, literal(0))


def _is_truth(tree: ast.expr) -> bool:
    """Whether it is already 0 or 1."""
    match tree:
        case ast.Compare():
            return True
        case ast.Call(func=ast.Name(id="max"), args=parts):
            return all(_is_truth(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _is_truth(left) and _is_truth(right)
    return False


def opposite(value: Number) -> Number:
    """`!value`"""
    return _opposite(truth(value))


def denied(value: Number) -> list[Number]:
    """Return the conditions of `!value`: for `a || b`, both negations."""
    match value.tree:
        case ast.Call(func=ast.Name(id="max"), args=parts) if _is_truth(value.tree):
            return [each for part in parts for each in denied(Number(part))]
    return [opposite(value)]


def both(a: Number, b: Number) -> Number:
    """Return `a && b`."""
    return binary(ast.Mult, truth(a), truth(b))


def either(a: Number, b: Number) -> Number:
    """Return `a || b`."""
    a, b = truth(a), truth(b)
    if a.constant is not None or b.constant is not None:
        known, other = (a, b) if a.constant is not None else (b, a)
        return known if known.constant else other
    if same(a, b):
        return a
    return call("max", a, b)


def factors(value: Number) -> list[Number]:
    """Return the factors of `a * b * c` in order."""
    match value.tree:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return [*factors(Number(left)), *factors(Number(right))]
    return [value]


def elements_of(size: Number, width: int) -> tuple[Number, ...]:
    """Return a size in bytes as the shape of an array with elements of `width` bytes: its factors, in order."""
    parts = factors(size)
    at = next((at for at in reversed(range(len(parts))) if parts[at].constant == width), None)
    if at is not None:
        del parts[at]
        return tuple(parts) or (literal(1),)
    for at, part in enumerate(parts):
        if isinstance(part.constant, int) and part.constant % width == 0:
            left = literal(part.constant // width)
            return tuple(each for each in (*parts[:at], left, *parts[at + 1 :]) if each.constant != 1) or (literal(1),)
    return (binary(ast.FloorDiv, size, literal(width)),)


def _opposite(truth: Number) -> Number:
    match truth.tree:
        case ast.Constant(value=known):
            return literal(int(not known))
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            return Number(ast.Compare(left, [_OPPOSITE[type(sign)]()], [right]))
    return compare(ast.Eq, truth, literal(0))


class NotFollowed(Exception):
    """The value cannot be a formula; it becomes a Hole."""


@dataclass(frozen=True)
class HostLaunch:
    """One `<<<…>>>`, with values of the host."""

    kernel: str
    template: tuple[str, ...]
    arguments: tuple[Value, ...]
    grid: Value
    block: Value
    shared: Value | None
    line: int
    caveat: Hole | None = None
    """Why the launch line may need a change by the user: a loop, a condition."""
    when: tuple[Number, ...] = ()
    """Conditions on sizes that all must hold for it."""
    round: int = 0
    """Number of times results were copied back before it."""


@dataclass
class Facts:
    """What is known about tensors and sizes so far."""

    axes: dict[str, set[int]] = field(default_factory=dict)
    """Tensor → axes whose size the host reads."""
    counted: set[str] = field(default_factory=set)
    """Tensors whose numel the host reads."""
    ranks: dict[str, int] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    """Tensors whose number of dimensions the host checks."""
    alike: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Tensors whose shapes the host compares."""
    equal: list[tuple[str, str]] = field(default_factory=list)
    """Sizes that the host compares."""
    required: list[Number] = field(default_factory=list)
    """Conditions that must hold."""
    spoken: dict[str, str] = field(default_factory=dict)
    """Size → the variable that holds it."""
    opted_in: set[str] = field(default_factory=set)
    """Kernels with cudaFuncSetAttribute for more shared memory."""
    copied: dict[str, int] = field(default_factory=dict)
    """`__constant__` variables that the host fills → line."""
    notes: dict[str, int] = field(default_factory=dict)
    """Sentences for the user → line."""
    line: int = 0
    """Line of the statement that is followed."""

    def require(self, condition: Number) -> None:
        """Add a condition of the host; sizes that it compares for equality become one."""
        self.required.append(condition)
        match condition.tree:
            case ast.Compare(left=ast.Name(id=one), ops=[ast.Eq()], comparators=[ast.Name(id=other)]):
                if "__" in one and "__" in other and one != other:
                    self.equal.append((one, other))

    def size(self, tensor: Tensor, axis: int) -> Value:
        if tensor.shape is not None:
            return (
                tensor.shape[axis]
                if -len(tensor.shape) <= axis < len(tensor.shape)
                else Hole("there is no such axis", self.line)
            )
        if tensor.like is not None:
            return self.size(tensor.like, axis)
        if tensor.base is not None:
            return Hole(f"the shape of a view of {tensor.base.name}", tensor.line)
        self.axes.setdefault(tensor.name, set()).add(axis)
        rank = self.ranks.get(tensor.name)
        if axis < 0 and rank is not None:
            axis += rank
        return named(placeholder(tensor.name, axis))

    def numel(self, tensor: Tensor) -> Value:
        if tensor.shape is None and tensor.like is None and tensor.base is not None:
            return self.numel(tensor.base)
        if tensor.shape is None and tensor.like is None:
            self.counted.add(tensor.name)
        shape = self.shape(tensor)
        return Hole("a number of elements", tensor.line) if shape is None else product(shape)

    def rank(self, tensor: Tensor) -> int | None:
        shape = self.shape(tensor)
        return None if shape is None else len(shape)

    def shape(self, tensor: Tensor) -> tuple[Number, ...] | None:
        """Return its sizes, if an earlier pass found how many there are."""
        if tensor.shape is not None:
            return tensor.shape
        if tensor.like is not None:
            return self.shape(tensor.like)
        rank = self.ranks.get(tensor.name)
        return None if rank is None else tuple(named(placeholder(tensor.name, axis)) for axis in range(rank))


def placeholder(tensor: str, axis: int) -> str:
    """Return the name of a size until a better one is found."""
    return f"{tensor}__{axis}" if axis >= 0 else f"{tensor}__m{-axis}"


def product(shape: Sequence[Number]) -> Number:
    total = literal(1)
    for size in shape:
        total = binary(ast.Mult, total, size)
    return total
