"""A host function of a file: what its names, calls and types mean.

A call of a function of the file follows its statements (`host_statements.HostRun`).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.engines.expressions import FUNCTIONS

from .cpp_tokens import read_tokens
from .device_part import TYPES
from .host_expressions import FLOAT_TYPES, INTEGER_TYPES, Reader, whole_number
from .host_values import (
    Dim3,
    Facts,
    Hole,
    HostFunction,
    HostLaunch,
    Items,
    Kernel,
    Lambda,
    NotFollowed,
    Number,
    Other,
    Pointer,
    Rank,
    Record,
    Scope,
    Tensor,
    Value,
    call,
    literal,
    named,
)
from .host_view import HostView, type_element
from .signatures import Function
from .torch_calls import FOLDED, MATHEMATICS, element_bytes, factory, method

_CEILING = frozenset(["cdiv", "ceildiv", "divup", "updiv", "divceil", "atenceildiv", "divroundup", "ceildivide"])
_DEPTH = 12
_LIBRARIES = re.compile(r"cublas|cudnn|nccl|cusparse|cufft|curand|cub$|thrust$|cutlass$")
"""Libraries whose kernels are not launches of the file, but whose results it uses."""


@dataclass(frozen=True)
class HostOutcome:
    """How a block was left early: with a value, or with an error of the host."""

    value: Value | None = None
    error: bool = False
    broke: bool = False
    """By `break`."""


class Host(ABC):
    """One host function and the meaning of its names, calls and types. `ranks` come from an earlier pass."""

    def __init__(
        self, view: HostView, *, element: str, ranks: Mapping[str, int], symbols: Collection[str] | None = None
    ) -> None:
        self.view, self.source, self.functions, self.kernels = view, view.source, view.functions, view.kernels
        self.element = element
        """The type that a dispatch macro's scalar_t becomes."""
        self.facts = Facts(ranks=dict(ranks))
        self.launches: list[HostLaunch] = []
        self.tensors: dict[str, Tensor] = {}
        self.used_defines: dict[str, int] = {}
        self.symbols = symbols
        """Integers of `main` that stay names; None: all."""
        self.sizes: dict[str, int] = {}
        """Those that do, with their values."""
        self.dispatched = False
        self.program = False
        """Whether it is `main`."""
        self.only_first = True
        """Whether only the launches of a program before it copies results back count."""
        self.stopped: int | None = None
        """The line of the first launch that does not count."""
        self.passed: set[str] = set()
        """Arrays that were passed to a launch."""
        self.caveats: list[Hole] = []
        """What happened between launches that launch lines cannot express."""
        self.round, self.launched = 0, False
        """How many times results were copied back after a launch."""
        self.guard: tuple[Number, ...] = ()
        """Condition of the rest of the function: branches that return handled the other sizes."""
        self.reached: set[int] = set()
        """The `<<<` that were followed."""
        self.called: set[str] = set()
        """The host functions of the file that were followed."""
        self.scopes: list[Scope] = []
        """The functions being followed, the innermost last."""
        self._depth = 0

    # Names and calls.
    def name(self, reader: Reader) -> Value:
        """Read a name, a call, a cast or a kernel at the reader's cursor."""
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
        if last in self.view.integers:
            return self.macro(last, reader.scope)
        if last in self.view.constants:
            value = Reader(self, self.source, *self.view.constants[last], Scope()).whole()
            return self.symbol(last, value) if last not in self.view.device_words else value
        if last in self.functions:
            return HostFunction(last, tuple(self.target(reader, *each) for each in targets))
        if last in self.view.variables:
            return Other()
        return factory(self.facts, path, None, reader.line(reader.at - 1))

    def macro(self, name: str, scope: Scope) -> Value:
        inner = read_tokens(self.view.integers[name], self.source.path)
        value = Reader(self, inner, 0, len(inner.tokens), scope).whole()
        if not isinstance(value, Number) or not isinstance(value.constant, int):
            return value
        if self.program and name not in self.view.device_words:
            return self.symbol(name, value)
        self.used_defines[name] = value.constant
        return named(name)

    def symbol(self, name: str, value: Value) -> Value:
        """Keep an integer of a program as a name, so that launch lines can have it as a size."""
        constant = value.constant if isinstance(value, Number) else None
        wanted = self.program and (self.symbols is None or name in self.symbols)
        if not wanted or not isinstance(constant, int) or constant < 1 or name in FUNCTIONS:
            return value
        if self.sizes.setdefault(name, constant) != constant:
            return value
        return named(name)

    def call(self, reader: Reader, path: Sequence[str], targets: list[tuple[int, int]]) -> Value:
        last, line = path[-1], reader.line(reader.at)
        ranges = reader.bracket()
        if last in ("TORCH_CHECK", "AT_ASSERTM", "TORCH_CHECK_EQ") or last.startswith("AT_DISPATCH"):
            raise NotFollowed  # statements
        if last in self.functions and (len(path) == 1 or path[0] not in ("std", "torch", "at")):
            function = HostFunction(last, tuple(self.target(reader, *each) for each in targets))
            arguments = reader.arguments(ranges)
            return self.call_function(function, arguments, line, reader.variables(ranges, arguments))
        if last.startswith("cuda") and len(path) == 1:
            return self.cuda_call(reader, last, ranges, line)
        arguments = reader.arguments(ranges)
        if last == "dim3":
            return Dim3(tuple(each if isinstance(each, Number) else Hole("a size of dim3", line) for each in arguments))
        if last in INTEGER_TYPES | FLOAT_TYPES and len(arguments) == 1:
            return self.cast(arguments[0], last, reader.scope, line)
        if last in self.view.structs:
            return self.record(last, tuple(arguments))
        if last in ("move", "forward", "ref", "cref") and len(arguments) == 1:
            return arguments[0]
        numbers = [each for each in arguments if isinstance(each, Number)]
        hole = next((each for each in arguments if isinstance(each, Hole)), None)
        if "".join(last.lower().split("_")) in _CEILING and len(numbers) == 2:
            return call("cdiv", *numbers)
        if last in MATHEMATICS:
            if hole is not None:
                return hole
            if len(numbers) == len(arguments):
                return MATHEMATICS[last](*numbers)
        known = [each.constant for each in numbers if each.constant is not None]
        if last in FOLDED and arguments and len(known) == len(arguments):
            return literal(float(FOLDED[last](*known)))
        if last in ("make_tuple", "tuple", "make_pair", "vector"):
            return Items(tuple(arguments))
        if last in ("atoi", "atol", "atof", "stoi", "stol", "stof", "stod", "strtol", "strtof"):
            return Hole("a number from the command line", line)
        if last in ("malloc", "calloc", "new", "aligned_alloc", "getenv", "fopen"):
            return Other()
        if _LIBRARIES.match(path[0]) and any(isinstance(each, Pointer | Tensor) for each in arguments):
            self.caveats.append(Hole(f"{'::'.join(path)} also changes the arrays", line))
            return Other()
        return factory(self.facts, path, arguments, reader.line(reader.at - 1))

    def add_launch(self, launch: HostLaunch) -> None:
        """Add a launch that host code makes here."""
        if self.program and self.round and self.only_first:
            if self.stopped is None:
                note = "launches after the first results are copied back are left out"
                self.facts.notes[f"{note}, from {launch.kernel} on; --function KERNEL imports another"] = launch.line
            self.stopped = launch.line
            return
        self.launched = True
        caveat = self.caveats[-1] if self.caveats else None
        self.launches.append(replace(launch, when=self.guard, round=self.round, caveat=launch.caveat or caveat))
        for value in launch.arguments:
            if isinstance(value, Pointer):
                self.passed.add(value.tensor.memory.name)

    def counted(self, value: Value) -> Value:
        """Return the number of dimensions, where an earlier pass found it."""
        rank = self.facts.rank(value.tensor) if isinstance(value, Rank) else None
        return value if rank is None else literal(rank)

    def launched_with(self, tensor: Tensor) -> bool:
        return tensor.memory.name in self.passed

    @abstractmethod
    def cuda_call(self, reader: Reader, name: str, ranges: list[tuple[int, int]], line: int) -> Value:
        """Follow a call of the CUDA runtime."""

    def record(self, kind: str, values: tuple[Value, ...]) -> Value:
        """Return a struct of the file with these members, in order; the others have their defaults."""
        made = Record(kind)
        for number, member in enumerate(self.view.structs[kind]):
            if number < len(values):
                made = made.put(member.name, values[number])
            elif member.default is not None:
                made = made.put(member.name, Reader(self, self.source, *member.default, Scope()).whole())
        return made

    def target(self, reader: Reader, start: int, end: int) -> tuple[str, Value]:
        """Return a template argument of a host function: a type's text, and its value if it is not a type."""
        return self.type_text(reader.source.spelled(start, end), reader.scope), reader.sub(start, end)

    def call_function(
        self, callee: HostFunction, arguments: Sequence[Value], line: int, variables: Sequence[str] = ()
    ) -> Value:
        """Follow a host function of the file, inlined."""
        function = self._overload(callee.name, arguments)
        if function is None:
            return Hole(f"it is not clear which {callee.name} is called here", line)
        self.called.add(callee.name)
        if not self.matters(function):
            return Other()
        caller, scope = self.scopes[-1] if self.scopes else Scope(), Scope()
        self._bind_template(function, callee, arguments, scope)
        for number, parameter in enumerate(function.parameters):
            if "..." in parameter.type:
                scope.names[parameter.name] = Items(tuple(arguments[number:]))
            elif number < len(arguments):
                scope.names[parameter.name] = arguments[number]
                scope.kinds[parameter.name] = self.type_text(parameter.type, scope)
            elif parameter.default is not None:
                scope.names[parameter.name] = Reader(self, self.source, *parameter.default, scope).whole()
        value = self._inside(function.start, function.end, scope)
        for number, name in enumerate(variables):
            if name and number < len(function.parameters) and _changes(function.parameters[number].type):
                caller.assign(name, scope.names[function.parameters[number].name])
        ceiling = "".join(callee.name.lower().split("_")) in _CEILING
        numbers = [each for each in arguments if isinstance(each, Number)]
        if isinstance(value, Hole) and ceiling and len(numbers) == 2:
            return call("cdiv", *numbers)
        return value

    def _overload(self, name: str, arguments: Sequence[Value]) -> Function | None:
        fitting = [each for each in self.functions[name] if each.takes(len(arguments))]
        if len(fitting) > 1:
            exact = [each for each in fitting if not each.variadic and _types_fit(each, arguments)]
            fitting = [each for each in exact if not each.template] or exact or fitting
        return fitting[0] if len(fitting) == 1 else None

    def bind_targets(self, function: Function, targets: Sequence[tuple[int, int]], scope: Scope) -> None:
        """Give the template parameters of the followed function the arguments of its binding."""
        reader = Reader(self, self.source, 0, 0, scope)
        callee = HostFunction(function.name, tuple(self.target(reader, *each) for each in targets))
        self._bind_template(function, callee, (), scope)

    def _bind_template(
        self, function: Function, callee: HostFunction, arguments: Sequence[Value], scope: Scope
    ) -> None:
        for number, parameter in enumerate(function.template):
            of_type = parameter.type.startswith(("typename", "class")) or parameter.type in ("typename", "class")
            if number < len(callee.targets):
                text, value = callee.targets[number]
                if of_type or isinstance(value, Hole):  # such as a device function, for a kernel's template arguments
                    scope.types[parameter.name] = text
                else:
                    scope.names[parameter.name] = value
            elif of_type:
                given = _deduced(parameter.name, function, arguments)
                if given:
                    scope.types[parameter.name] = given
                elif parameter.default is not None:
                    scope.types[parameter.name] = self.source.spelled(*parameter.default)
            elif parameter.default is not None:
                scope.names[parameter.name] = Reader(self, self.source, *parameter.default, scope).whole()

    def matters(self, function: Function) -> bool:
        """Whether a call may launch, allocate, check or return a value; other host code is not followed."""
        if function.result.split()[-1:] != ["void"]:
            return function.end - function.start < 4000
        if any(_changes(parameter.type) for parameter in function.parameters):
            return True
        words = {token.text for token in self.source.tokens[function.start : function.end]}
        telling = any(
            word.startswith(("cuda", "TORCH_CHECK", "AT_", "<<<", "assert", "exit", "throw")) for word in words
        )
        others = words & set(self.functions) - {function.name}
        return telling or any(self.matters(each) for name in others for each in self.functions[name][:1])

    def call_lambda(self, function: Lambda, arguments: Sequence[Value]) -> Value:
        names = dict(zip(function.parameters, arguments, strict=False))
        return self._inside(function.start, function.end, Scope(names, outer=function.scope))

    @abstractmethod
    def execute(self, start: int, end: int, scope: Scope) -> HostOutcome | None:
        """Follow the statements of tokens start to end; None if control reaches the end."""

    def _inside(self, start: int, end: int, scope: Scope) -> Value:
        if self._depth > _DEPTH:
            return Hole("host functions call each other too deeply", self.facts.line)
        self._depth += 1
        guard = self.guard
        self.scopes.append(scope)
        try:
            outcome = self.execute(start, end, scope)
        finally:
            self._depth -= 1
            self.guard = guard
            self.scopes.pop()
        return outcome.value if outcome is not None and outcome.value is not None else Other()

    def method(
        self, reader: Reader, value: Value, name: str, targets: list[tuple[int, int]], ranges: list[tuple[int, int]]
    ) -> Value:
        arguments = reader.arguments(ranges)
        text = self.type_text(reader.source.spelled(*targets[0]), reader.scope) if targets else ""
        return method(self.facts, value, name, text, arguments)

    # Types.
    def type_text(self, text: str, scope: Scope) -> str:
        """Return the type with names from `using` and dispatch macros replaced."""
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
        word = re.fullmatch(r"\*?\s*(\w+)(\[0\])?", text)
        if word and reader.scope.kind(word[1]):  # sizeof(x), sizeof(*x), sizeof(x[0])
            kind, held = reader.scope.kind(word[1]), reader.scope.find(word[1])
            whole = word[0] == word[1]
            text = kind if whole else kind.replace("*", "", 1)
            count = len(held.values) if whole and isinstance(held, Items) else 1
        else:
            count = 1
        width = 8 if "*" in text else element_bytes(self.view.element(text))
        if width is None:
            return Hole(f"sizeof({text})", reader.line(start))
        return literal(width * count)

    def template_argument(self, reader: Reader, start: int, end: int) -> str:
        """Return the argument as a launch line writes it: a type, a literal, or a formula in braces."""
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


def _changes(kind: str) -> bool:
    """Whether a function may change the caller's variable through a parameter of this type."""
    return "const" not in kind.split() and ("&" in kind or "* *" in kind.replace("**", "* *"))


def _types_fit(function: Function, arguments: Sequence[Value]) -> bool:
    for parameter, value in zip(function.parameters, arguments, strict=False):
        if isinstance(value, Number) and "*" in parameter.type and value.constant != 0:
            return False
        if isinstance(value, Pointer | Tensor) and not ("*" in parameter.type or "Tensor" in parameter.type):
            return function.template != () or "auto" in parameter.type
        given = type_element(value.type) if isinstance(value, Pointer) else ""
        wanted = type_element(parameter.type)
        if given and wanted and given != wanted:
            return False
    return True


def _deduced(name: str, function: Function, arguments: Sequence[Value]) -> str:
    """Return the type of a template parameter, deduced from a pointer to it."""
    for parameter, value in zip(function.parameters, arguments, strict=False):
        base = re.sub(r"\bconst\b|__restrict__|\*|&", "", parameter.type).strip()
        if base == name and isinstance(value, Pointer) and "*" in parameter.type:
            return re.sub(r"\bconst\b|__restrict__|\*", "", value.type).strip()
    return ""
