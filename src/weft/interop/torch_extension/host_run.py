"""The host's part of a torch extension, followed from its function's first line to its last.

Nothing is executed: sizes are names, tensors are names with a shape, and each `<<<…>>>` leaves a Launch. What the
formulas of launch lines cannot say becomes a Hole.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .cpp_tokens import Source, read_tokens
from .device_part import TYPES
from .host_expressions import FLOAT_TYPES, INTEGER_TYPES, NotFollowed, Reader, element_bytes, type_element
from .host_values import (
    Dim3,
    Hole,
    Items,
    Kernel,
    Lambda,
    Number,
    Other,
    Pointer,
    Scope,
    Tensor,
    Value,
    binary,
    call,
    literal,
    named,
)
from .signatures import Function, KernelSignature
from .torch_calls import MATHEMATICS, factory, method

_CEILING = frozenset(["cdiv", "ceildiv", "divup", "updiv", "divceil", "atenceildiv", "divroundup", "ceildivide"])
_DEPTH = 12


@dataclass(frozen=True)
class Launch:
    """One `<<<…>>>`, in the host's words."""

    kernel: str
    template: tuple[str, ...]
    arguments: tuple[Value, ...]
    grid: Value
    block: Value
    shared: Value | None
    line: int
    doubt: Hole | None = None
    """Why the line may not be meant as it stands: a loop, a condition."""


@dataclass(frozen=True)
class Outcome:
    """How a block ended before its end: with a value, or with an error of the host's."""

    value: Value | None = None
    error: bool = False


@dataclass
class Facts:
    """What is known of sizes."""

    axes: dict[str, set[int]] = field(default_factory=dict)
    """Tensor → axes whose size the host reads."""
    counted: set[str] = field(default_factory=set)
    """Tensors whose numel it reads."""
    ranks: dict[str, int] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    """Tensors whose number of dimensions the host checks."""
    alike: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Tensors whose shapes it compares."""
    equal: list[tuple[str, str]] = field(default_factory=list)
    """Sizes that it compares."""
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


class HostRun:
    """Follows one host function. `ranks` are what an earlier pass found."""

    def __init__(
        self,
        source: Source,
        functions: Mapping[str, Function],
        kernels: Mapping[str, KernelSignature],
        macros: tuple[Mapping[str, str], Mapping[str, tuple[tuple[str, ...], str]]],
        constants: Mapping[str, tuple[int, int]],
        *,
        element: str,
        ranks: Mapping[str, int],
    ) -> None:
        self.source, self.functions, self.kernels, self.constants = source, functions, kernels, constants
        self.defines, self.function_macros = macros
        self.element = element
        """What a dispatch macro's scalar_t becomes."""
        self.facts = Facts(ranks=dict(ranks))
        self.launches: list[Launch] = []
        self.tensors: dict[str, Tensor] = {}
        self.used_defines: dict[str, int] = {}
        self.dispatched = False
        self.reached: set[int] = set()
        """The `<<<` that were followed."""
        self.called: set[str] = set()
        """The file's host functions that were."""
        self.line = 0
        self._depth = 0

    # Sizes.
    def size(self, tensor: Tensor, axis: int) -> Value:
        if tensor.shape is not None:
            return (
                tensor.shape[axis]
                if -len(tensor.shape) <= axis < len(tensor.shape)
                else Hole("no such axis", self.line)
            )
        if tensor.like is not None:
            return self.size(tensor.like, axis)
        if tensor.base is not None:
            return Hole(f"the shape of a view of {tensor.base.name}", tensor.line)
        self.facts.axes.setdefault(tensor.name, set()).add(axis)
        rank = self.facts.ranks.get(tensor.name)
        if axis < 0 and rank is not None:
            axis += rank
        return named(placeholder(tensor.name, axis))

    def numel(self, tensor: Tensor) -> Value:
        if tensor.shape is None and tensor.like is None and tensor.base is not None:
            return self.numel(tensor.base)
        if tensor.shape is None and tensor.like is None:
            self.facts.counted.add(tensor.name)
        shape = self.shape(tensor)
        return Hole("a number of elements", tensor.line) if shape is None else product(shape)

    def shape(self, tensor: Tensor) -> tuple[Number, ...] | None:
        """Its sizes, as far as an earlier pass could tell how many there are."""
        if tensor.shape is not None:
            return tensor.shape
        if tensor.like is not None:
            return self.shape(tensor.like)
        rank = self.facts.ranks.get(tensor.name)
        return None if rank is None else tuple(named(placeholder(tensor.name, axis)) for axis in range(rank))

    # Names and calls.
    def name(self, reader: Reader) -> Value:
        """A name, a call, a cast or a kernel at the reader's cursor."""
        reader.accept("::")
        start = reader.at
        path, targets = [reader.take().text], reader.template_arguments()
        while reader.peek_text() == "::":
            reader.at += 1
            path.append(reader.take().text)
            targets = reader.template_arguments() or targets
        last = path[-1]
        if last in ("static_cast", "reinterpret_cast", "const_cast"):
            if len(targets) != 1:
                raise NotFollowed
            text = reader.source.spelled(*targets[0])
            return self.cast(reader.one(), text, reader.scope, reader.line(start))
        if last == "sizeof":
            return self.size_of(reader)
        opens = reader.peek_text()
        known = reader.scope.find(last) if len(path) == 1 else None
        if known is not None:
            return known
        if opens in ("(", "{"):
            return self.call(reader, path, targets)
        if last in self.kernels:
            return Kernel(last, tuple(self.template_argument(reader, *each) for each in targets))
        if last in ("true", "false", "nullptr", "NULL"):
            return literal(int(last == "true"))
        if last in self.defines:
            return self.macro(last, reader.scope)
        if last in self.constants:
            return Reader(self, self.source, *self.constants[last], Scope()).whole()
        return factory(self, reader, path, targets, None)

    def macro(self, name: str, scope: Scope) -> Value:
        text = self.defines[name]
        inner = read_tokens(text, self.source.path)
        value = Reader(self, inner, 0, len(inner.tokens), scope).whole()
        if isinstance(value, Number) and isinstance(value.constant, int):
            self.used_defines[name] = value.constant
            return named(name)
        return value

    def call(self, reader: Reader, path: Sequence[str], targets: list[tuple[int, int]]) -> Value:
        last, line = path[-1], reader.line(reader.at)
        if last in self.function_macros:
            return self.expand(reader, last)
        ranges = reader.bracket()
        if last in ("TORCH_CHECK", "AT_ASSERTM", "TORCH_CHECK_EQ") or last.startswith(("AT_DISPATCH", "cudaFunc")):
            raise NotFollowed  # statements
        arguments = [reader.sub(*each) for each in ranges]
        if last == "dim3":
            return Dim3(tuple(each if isinstance(each, Number) else Hole("a size of dim3", line) for each in arguments))
        if last in INTEGER_TYPES | FLOAT_TYPES and len(arguments) == 1:
            return self.cast(arguments[0], last, reader.scope, line)
        if last in self.functions and len(path) == 1:
            return self.call_function(last, arguments, line)
        numbers = [each for each in arguments if isinstance(each, Number)]
        hole = next((each for each in arguments if isinstance(each, Hole)), None)
        if "".join(last.lower().split("_")) in _CEILING and len(numbers) == 2:
            return call("cdiv", *numbers)
        if last in MATHEMATICS:
            if hole is not None:
                return hole
            if len(numbers) == len(arguments):
                return MATHEMATICS[last](*numbers)
        if last in ("make_tuple", "tuple", "make_pair", "vector"):
            return Items(tuple(arguments))
        return factory(self, reader, path, targets, arguments)

    def expand(self, reader: Reader, name: str) -> Value:
        """A macro with parameters, whose arguments are values: enough for arithmetic."""
        parameters, text = self.function_macros[name]
        arguments = [reader.sub(*each) for each in reader.bracket()]
        if len(arguments) != len(parameters):
            raise NotFollowed
        inner = read_tokens(text, self.source.path)
        scope = Scope(dict(zip(parameters, arguments, strict=True)), outer=reader.scope)
        return Reader(self, inner, 0, len(inner.tokens), scope).whole()

    def call_function(self, name: str, arguments: Sequence[Value], line: int) -> Value:
        """A host function of the file, in place."""
        function = self.functions[name]
        self.called.add(name)
        scope = Scope()
        for number, parameter in enumerate(function.parameters):
            if number < len(arguments):
                scope.names[parameter.name] = arguments[number]
            elif parameter.default is not None:
                scope.names[parameter.name] = Reader(self, self.source, *parameter.default, scope).whole()
        value = self._inside(function.start, function.end, scope)
        ceiling = "".join(name.lower().split("_")) in _CEILING
        numbers = [each for each in arguments if isinstance(each, Number)]
        if isinstance(value, Hole) and ceiling and len(numbers) == 2:
            return call("cdiv", *numbers)
        return value

    def call_lambda(self, function: Lambda, arguments: Sequence[Value]) -> Value:
        names = dict(zip(function.parameters, arguments, strict=False))
        return self._inside(function.start, function.end, Scope(names, outer=function.scope))

    def execute(self, start: int, end: int, scope: Scope) -> "Outcome | None":
        """Follow the statements of tokens start … end; None if control leaves at the end."""
        from .host_statements import statement  # a statement holds expressions, and a call statements

        at = start
        while at < end:
            at, outcome = statement(self, at, end, scope)
            if outcome is not None:
                return outcome
        return None

    def _inside(self, start: int, end: int, scope: Scope) -> Value:
        if self._depth > _DEPTH:
            return Hole("host functions that call each other deeply", self.line)
        self._depth += 1
        try:
            outcome = self.execute(start, end, scope)
        finally:
            self._depth -= 1
        return outcome.value if outcome is not None and outcome.value is not None else Other()

    def method(
        self, reader: Reader, value: Value, name: str, targets: list[tuple[int, int]], ranges: list[tuple[int, int]]
    ) -> Value:
        arguments = [reader.sub(*each) for each in ranges]
        text = self.type_text(reader.source.spelled(*targets[0]), reader.scope) if targets else ""
        return method(self, value, name, text, arguments)

    # Types.
    def type_text(self, text: str, scope: Scope) -> str:
        """With the names that `using` and dispatch macros gave to types replaced."""
        words = [word for word in text.replace("*", " * ").split() if word != "typename"]
        return " ".join(scope.type(word) or word for word in words)

    def cast(self, value: Value, text: str, scope: Scope, line: int) -> Value:
        kind = self.type_text(text, scope)
        if isinstance(value, Pointer) and "*" in kind:
            plain = type_element(kind) or "ELEMENT" in kind
            return Pointer(value.tensor, kind) if plain or not value.type else value
        if isinstance(value, Number) and "*" not in kind:
            words = set(kind.split())
            if words & FLOAT_TYPES:
                return Number(value.tree, True)
            if words & INTEGER_TYPES:
                return whole_number(value, line)
        return value

    def size_of(self, reader: Reader) -> Value:
        start, close = reader.at, reader.source.close(reader.at)
        reader.at = close + 1
        text = self.type_text(reader.source.spelled(start + 1, close), reader.scope)
        width = 8 if "*" in text else element_bytes(type_element(text))
        if width is None:
            return Hole(f"sizeof({text})", reader.line(start))
        return literal(width)

    def template_argument(self, reader: Reader, start: int, end: int) -> str:
        """As a launch line writes it: a type, a literal, or a formula in braces."""
        spelled = reader.source.spelled(start, end)
        known = reader.scope.type(spelled)
        if known is not None:
            return f"{{{known}}}" if known == "ELEMENT" else known
        plain = spelled.rpartition("::")[2]
        if spelled.startswith(("at::", "c10::", "torch::")) and plain in TYPES:
            return TYPES[plain]
        if type_element(spelled) or spelled in ("true", "false"):
            return spelled
        value = Reader(self, reader.source, start, end, reader.scope).whole()
        if isinstance(value, Number):
            return str(value.constant) if value.constant is not None else f"{{{value.text}}}"
        return spelled


def whole_number(value: Number, line: int) -> Value:
    """To an integer, as C++ cuts it."""
    if not value.floating:
        return value
    if value.constant is not None:
        return literal(int(value.constant))
    if value.text.startswith(("ceil(", "cdiv(")):
        return Number(value.tree)
    return Hole(f"`{value.text}` is cut to an integer", line)


def placeholder(tensor: str, axis: int) -> str:
    """The name of a size until a better one is found."""
    return f"{tensor}__{axis}" if axis >= 0 else f"{tensor}__m{-axis}"


def product(shape: Sequence[Number]) -> Number:
    total = literal(1)
    for size in shape:
        total = binary(ast.Mult, total, size)
    return total
