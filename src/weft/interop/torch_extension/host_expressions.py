"""Expressions of host code → Values, by precedence climbing; what is not known is a Hole with its line.

A call of the file's own function follows its statements, which `host_statements.HostRun` does.
"""

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.engines.element_types import CPP_TYPES

from .cpp_tokens import CppSource, Token, read_tokens
from .device_part import TYPES
from .host_values import (
    Dim3,
    Facts,
    Hole,
    HostLaunch,
    Items,
    Kernel,
    Lambda,
    NotFollowed,
    Number,
    Other,
    Pointer,
    Scope,
    Sizes,
    Tensor,
    Value,
    binary,
    call,
    choose,
    compare,
    literal,
    named,
)
from .signatures import Function, KernelSignature
from .torch_calls import MATHEMATICS, element_bytes, factory, method

INTEGER_TYPES = frozenset(
    ["int", "unsigned", "long", "short", "size_t", "int64_t", "int32_t", "uint32_t", "uint64_t", "bool", "char",
     "int16_t", "uint16_t", "uint8_t", "int8_t", "signed"]
)  # fmt: skip
FLOAT_TYPES = frozenset(["float", "double"])
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_COMPARE: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE,
}  # fmt: skip
_ARITHMETIC: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.FloorDiv, "%": ast.Mod,
}  # fmt: skip
_TYPE_TOKENS = frozenset(["::", "*", "&", "<", ">", ","])
_CEILING = frozenset(["cdiv", "ceildiv", "divup", "updiv", "divceil", "atenceildiv", "divroundup", "ceildivide"])
_DEPTH = 12


class Reader:
    """Reads tokens start … end of a source in a scope."""

    def __init__(self, run: "Host", source: CppSource, start: int, end: int, scope: Scope) -> None:
        self.run, self.source, self.at, self.end, self.scope = run, source, start, end, scope

    def whole(self) -> Value:
        """The value of all of it."""
        start = self.at
        try:
            value = self.conditional()
            if self.at != self.end:
                raise NotFollowed
        except NotFollowed:
            return Hole(f"`{self.source.spelled(start, self.end)}` cannot be followed", self.line(start))
        return value

    def line(self, at: int) -> int:
        """Of a token in the user's file; a macro's body has the line of its use."""
        if self.source is not self.run.source:
            return self.run.facts.line
        return self.source.tokens[min(at, len(self.source.tokens) - 1)].line

    def conditional(self) -> Value:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        first = self.conditional()
        self.expect(":")
        second = self.conditional()
        if not isinstance(condition, Number):
            raise NotFollowed
        if condition.constant is not None:
            return first if condition.constant else second
        if isinstance(first, Number) and isinstance(second, Number):
            return choose(condition, first, second)
        raise NotFollowed

    def binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (sign := self.operator(_LEVELS[level])) is not None:
            left = self.combine(sign, left, self.binary(level + 1))
        return left

    def operator(self, signs: tuple[str, ...]) -> str | None:
        """The operator here if it is one of these; shifts are two tokens without a space."""
        here = self.peek()
        if here is None or here.kind != "punct":
            return None
        text, width = here.text, 1
        after = self.source.tokens[self.at + 1] if self.at + 1 < self.end else None
        if text in "<>" and after is not None and after.text == text and after.start == here.end:
            text, width = text * 2, 2
        if text not in signs:
            return None
        self.at += width
        return text

    def combine(self, sign: str, left: Value, right: Value) -> Value:
        for side in (left, right):
            if isinstance(side, Hole):
                return side
        if isinstance(left, Pointer):
            return Hole(f"a pointer into {left.tensor.name}: launch lines pass whole arrays", self.line(self.at - 1))
        if not isinstance(left, Number) or not isinstance(right, Number):
            raise NotFollowed
        if sign in _COMPARE:
            return compare(_COMPARE[sign], left, right)
        if sign in "/%" and (_may_be_negative(left) or _may_be_negative(right)):
            raise NotFollowed  # C++ rounds towards zero, formulas round down
        if sign in _ARITHMETIC:
            return binary(_ARITHMETIC[sign], left, right)
        if sign == "&&":
            return binary(ast.Mult, truth(left), truth(right))
        if sign == "||":
            return call("max", truth(left), truth(right))
        if sign in ("<<", ">>"):
            return binary(ast.Mult if sign == "<<" else ast.FloorDiv, left, binary(ast.Pow, literal(2), right))
        raise NotFollowed

    def unary(self) -> Value:
        token = self.take()
        if token.text in ("-", "+", "!"):
            value = self.unary()
            if isinstance(value, Hole):
                return value
            if not isinstance(value, Number):
                raise NotFollowed
            if token.text == "!":
                return compare(ast.Eq, value, literal(0))
            if token.text == "+":
                return value
            negative = value.constant
            return (
                literal(-negative)
                if negative is not None
                else Number(ast.UnaryOp(ast.USub(), value.tree), value.floating)
            )
        if token.text in ("&", "*"):
            return self.unary()
        if token.text == "(" and (type_text := self.cast_type()) is not None:
            return self.run.cast(self.unary(), type_text, self.scope, self.line(self.at))
        self.at -= 1
        return self.postfix()

    def cast_type(self) -> str | None:
        """`(const float*)` in front of an expression; the cursor stands behind the parenthesis that opens."""
        close = self.source.close(self.at - 1)
        inside = self.source.tokens[self.at : close]
        words = [token.text for token in inside if token.kind == "word"]
        plain = all(token.kind == "word" or token.text in _TYPE_TOKENS for token in inside)
        known = words and (
            inside[-1].text == "*" or {*words} <= {*INTEGER_TYPES, *FLOAT_TYPES, "const"} or self.scope.type(words[0])
        )
        if not plain or not known or close + 1 >= self.end:
            return None
        text = self.source.spelled(self.at, close)
        self.at = close + 1
        return text

    def postfix(self) -> Value:
        value = self.primary()
        while (token := self.peek()) is not None:
            if token.text in (".", "->"):
                self.at += 1
                name = self.take().text
                targets = self.template_arguments()
                if self.peek_text() == "(":
                    value = self.run.method(self, value, name, targets, self.bracket())
                else:
                    value = self.member(value, name)
            elif token.text == "(":
                if not isinstance(value, Lambda):
                    raise NotFollowed
                arguments = [self.sub(*each) for each in self.bracket()]
                value = self.run.call_lambda(value, arguments)
            elif token.text == "[":
                value = self.subscript(value, self.one())
            else:
                break
        return value

    def member(self, value: Value, name: str) -> Value:
        if isinstance(value, Dim3) and name in "xyz":
            return value.sizes["xyz".index(name)] if "xyz".index(name) < len(value.sizes) else literal(1)
        if isinstance(value, Other | Hole):
            return value
        raise NotFollowed

    def subscript(self, value: Value, index: Value) -> Value:
        if isinstance(index, Number) and isinstance(index.constant, int):
            if isinstance(value, Sizes):
                return self.run.facts.size(value.tensor, index.constant)
            if isinstance(value, Items) and 0 <= index.constant < len(value.values):
                return value.values[index.constant]
        raise NotFollowed

    def primary(self) -> Value:
        token = self.take()
        if token.kind == "number":
            return number(token.text)
        if token.kind in ("string", "char"):
            return Other()
        if token.text == "(":
            value = self.sub(self.at, self.source.close(self.at - 1))
            self.at = self.source.close(self.at - 1) + 1
            return value
        if token.text == "{":
            self.at -= 1
            return Items(tuple(self.sub(*each) for each in self.bracket()))
        if token.text == "[":
            return self.lambda_value()
        if token.kind == "word" or token.text == "::":
            self.at -= 1
            return self.run.name(self)
        raise NotFollowed

    def lambda_value(self) -> Value:
        self.at = self.source.close(self.at - 1) + 1
        parameters: tuple[str, ...] = ()
        if self.peek_text() == "(":
            ranges = self.bracket()
            parameters = tuple(self.source.tokens[end - 1].text for _, end in ranges)
        while self.peek_text() not in ("{", ""):  # mutable, -> type
            self.at += 1
        start = self.at
        self.expect("{")
        self.at = self.source.close(start) + 1
        return Lambda(parameters, start + 1, self.at - 1, self.scope)

    # The cursor.
    def sub(self, start: int, end: int) -> Value:
        return Reader(self.run, self.source, start, end, self.scope).whole()

    def peek(self) -> Token | None:
        return self.source.tokens[self.at] if self.at < self.end else None

    def peek_text(self) -> str:
        token = self.peek()
        return token.text if token else ""

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise NotFollowed
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        found = self.peek_text() == text
        self.at += found
        return found

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise NotFollowed

    def bracket(self) -> list[tuple[int, int]]:
        """The ranges between the commas of the bracket that opens here; the cursor moves behind it."""
        if self.at >= self.end or self.peek_text() not in ("(", "[", "{"):
            raise NotFollowed
        start, close = self.at, self.source.close(self.at)
        self.at = close + 1
        return self.source.split(start + 1, close)

    def one(self) -> Value:
        """The value in a bracket that holds exactly one."""
        ranges = self.bracket()
        if len(ranges) != 1:
            raise NotFollowed
        return self.sub(*ranges[0])

    def template_arguments(self) -> list[tuple[int, int]]:
        if self.at not in self.source.angles or self.at >= self.end:
            return []
        start, close = self.at, self.source.angles[self.at]
        self.at = close + 1
        return self.source.split(start + 1, close)


@dataclass(frozen=True)
class HostOutcome:
    """How a block ended before its end: with a value, or with an error of the host's."""

    value: Value | None = None
    error: bool = False


class Host(ABC):
    """One host function and what its names, calls and types mean. `ranks` are what an earlier pass found."""

    def __init__(
        self,
        source: CppSource,
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
        self.launches: list[HostLaunch] = []
        self.tensors: dict[str, Tensor] = {}
        self.used_defines: dict[str, int] = {}
        self.program_sizes: dict[str, int] | None = None
        """Of a `main()`: its constants that are named like sizes. None: the function is given its sizes."""
        self.dispatched = False
        self.reached: set[int] = set()
        """The `<<<` that were followed."""
        self.called: set[str] = set()
        """The file's host functions that were."""
        self._depth = 0

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
        return factory(self.facts, path, None, reader.line(reader.at - 1))

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
        return factory(self.facts, path, arguments, reader.line(reader.at - 1))

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

    @abstractmethod
    def execute(self, start: int, end: int, scope: Scope) -> HostOutcome | None:
        """Follow the statements of tokens start … end; None if control leaves at the end."""

    def _inside(self, start: int, end: int, scope: Scope) -> Value:
        if self._depth > _DEPTH:
            return Hole("host functions that call each other deeply", self.facts.line)
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
        return method(self.facts, value, name, text, arguments)

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


def _may_be_negative(value: Number) -> bool:
    if value.floating:
        return False
    nodes = list(ast.walk(value.tree))
    return any(isinstance(node, ast.USub) or (isinstance(node, ast.Constant) and node.value < 0) for node in nodes)  # type: ignore[operator]


def truth(value: Number) -> Number:
    """As C++ takes it for a condition."""
    return value if isinstance(value.tree, ast.Compare) else compare(ast.NotEq, value, literal(0))


def number(text: str) -> Number:
    """A literal of C++."""
    plain = text.replace("'", "")
    if re.fullmatch(r"0[xX][0-9a-fA-F]+[uUlL]*|0[bB][01]+[uUlL]*|\d+[uUlL]*", plain):
        digits = plain.rstrip("uUlL")
        if re.fullmatch(r"0\d+", digits):
            return literal(int(digits, 8))
        return literal(int(digits, 0))
    match = re.fullmatch(r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFlL]?", plain)
    if match is None:
        raise NotFollowed
    return literal(float(match[1]))


def type_element(text: str) -> str:
    """`const at::Half*` → f16; empty where it is no type that launch lines know."""
    words = [
        word for word in re.split(r"[\s*&]+", text) if word not in ("const", "volatile", "", "__restrict__", "restrict")
    ]
    plain = " ".join(word.rpartition("::")[2] for word in words)
    return {
        "Half": "f16",
        "BFloat16": "bf16",
        "Float8_e4m3fn": "e4m3",
        "Float8_e5m2": "e5m2",
        "long": "i64",
        "__half": "f16",
    }.get(plain, CPP_TYPES.get(plain, ""))
