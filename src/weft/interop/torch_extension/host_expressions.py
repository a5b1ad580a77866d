"""Expressions of host code → Values, by precedence climbing; an unknown value is a Hole with its line.

What names and calls mean is given by `host.Host`.
"""

import ast
import re
from collections.abc import Sequence
from typing import Protocol

from .cpp_tokens import CppSource, Token
from .host_values import (
    Dim3,
    Facts,
    Hole,
    HostFunction,
    Items,
    Kernel,
    Lambda,
    NotFollowed,
    Number,
    Other,
    Pointer,
    Record,
    Scope,
    Sizes,
    Type,
    Value,
    binary,
    both,
    choose,
    compare,
    either,
    literal,
)

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
ARGC = "argc"


class Meaning(Protocol):
    """What names, calls and types of a host function mean: `host.Host`."""

    source: CppSource
    facts: Facts

    def name(self, reader: "Reader") -> Value:
        """Return the value of the name, or the call, at which the reader is."""
        ...

    def method(
        self, reader: "Reader", value: Value, name: str, targets: list[tuple[int, int]], ranges: list[tuple[int, int]]
    ) -> Value:
        """Return `value.name(…)`."""
        ...

    def call_function(
        self, function: HostFunction, arguments: Sequence[Value], line: int, variables: Sequence[str] = ()
    ) -> Value:
        """Follow a function of the file."""
        ...

    def call_lambda(self, function: Lambda, arguments: Sequence[Value]) -> Value:
        """Follow a lambda."""
        ...

    def cast(self, value: Value, text: str, scope: Scope, line: int) -> Value:
        """Return the value as another type."""
        ...

    def counted(self, value: Value) -> Value:
        """Return the value, counted as used."""
        ...


class Reader:
    """Reads tokens start to end of a source in a scope."""

    def __init__(self, run: Meaning, source: CppSource, start: int, end: int, scope: Scope) -> None:
        self.run, self.source, self.at, self.end, self.scope = run, source, start, end, scope

    def whole(self) -> Value:
        """Return the value of all tokens."""
        start = self.at
        try:
            value = self.conditional()
            if self.at != self.end:
                raise NotFollowed
        except NotFollowed:
            return Hole(f"`{self.source.spelled(start, self.end)}` cannot be followed", self.line(start))
        return value

    def line(self, at: int) -> int:
        """Return a token's line in the user's file; a macro's body has the line of its use."""
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
        return pick(condition, first, second, self.line(self.at - 1))

    def binary(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (sign := self.operator(_LEVELS[level])) is not None:
            left = self.combine(sign, left, self.binary(level + 1))
        return left

    def operator(self, signs: tuple[str, ...]) -> str | None:
        """Return the operator here if it is one of these; shifts are two tokens without a space."""
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
        left, right = (self.run.counted(side) for side in (left, right))
        for side in (left, right):
            if isinstance(side, Hole):
                return side
        if isinstance(left, Type) and isinstance(right, Type) and sign in ("==", "!="):
            return self.same_type(sign, left, right)
        if isinstance(left, Pointer) and isinstance(right, Number) and right.constant == 0 and sign in "+-":
            return left
        if isinstance(left, Pointer) and sign in "+-":
            return Hole(f"a pointer into {left.tensor.name}: launch lines pass entire arrays", self.line(self.at - 1))
        if not isinstance(left, Number) or not isinstance(right, Number):
            raise NotFollowed
        if sign in _COMPARE:
            return compare(_COMPARE[sign], left, right)
        if sign in "/%" and (_may_be_negative(left) or _may_be_negative(right)):
            raise NotFollowed  # C++ rounds towards zero, formulas round down
        if sign in _ARITHMETIC:
            return binary(_ARITHMETIC[sign], left, right)
        if sign == "&&":
            return both(left, right)
        if sign == "||":
            return either(left, right)
        if sign == "&" and isinstance(right.constant, int) and right.constant < 0:
            step = literal(-right.constant)  # x & ~63: down to a multiple of 64
            if right.constant & (right.constant - 1) == right.constant * 2:
                return binary(ast.Mult, binary(ast.FloorDiv, left, step), step)
        if sign in ("<<", ">>"):
            return binary(ast.Mult if sign == "<<" else ast.FloorDiv, left, binary(ast.Pow, literal(2), right))
        raise NotFollowed

    def same_type(self, sign: str, left: Type, right: Type) -> Value:
        """`x.dtype() == torch::kHalf`: an array of unknown type gets the first type it is compared with."""
        one, other = (left, right) if left.of is not None else (right, left)
        if one.of is None or not other.element or other.of is not None:
            raise NotFollowed
        tensor = one.of.memory
        if not tensor.element:
            tensor.element = other.element
            if sign == "==":
                note = f"{tensor.name} is assumed to be {other.element}: the host compares its type with it"
                self.run.facts.notes[note] = self.line(self.at - 1)
        return literal(int((tensor.element == other.element) == (sign == "==")))

    def unary(self) -> Value:
        token = self.take()
        if token.text in ("-", "+", "!", "~"):
            value = self.unary()
            if isinstance(value, Hole):
                return value
            if not isinstance(value, Number):
                raise NotFollowed
            if token.text == "~":
                if not isinstance(value.constant, int):
                    raise NotFollowed
                return literal(~value.constant)
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
        """Read `(const float*)` before an expression; the cursor is after the opening parenthesis."""
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
            elif token.text == "(" and isinstance(value, HostFunction):
                ranges = self.bracket()
                given = self.arguments(ranges)
                value = self.run.call_function(value, given, self.line(self.at - 1), self.variables(ranges, given))
            elif token.text == "(":
                if not isinstance(value, Lambda):
                    raise NotFollowed
                value = self.run.call_lambda(value, self.arguments(self.bracket()))
            elif token.text == "[":
                value = self.subscript(value, self.one())
            else:
                break
        return value

    def member(self, value: Value, name: str) -> Value:
        if isinstance(value, Dim3) and name in "xyz":
            return value.sizes["xyz".index(name)] if "xyz".index(name) < len(value.sizes) else literal(1)
        if isinstance(value, Record):
            found = value.get(name)
            return found if found is not None else Hole(f"{name} has no value here", self.line(self.at - 1))
        if isinstance(value, Other | Hole):
            return value
        raise NotFollowed

    def subscript(self, value: Value, index: Value) -> Value:
        if isinstance(index, Number) and isinstance(index.constant, int):
            if isinstance(value, Sizes):
                return self.run.facts.size(value.tensor, index.constant)
            if isinstance(value, Items) and 0 <= index.constant < len(value.values):
                return value.values[index.constant]
            if isinstance(value, Pointer) and index.constant == 0:
                return value
        if isinstance(value, Other):  # memory of the host
            return value
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
            return Items(tuple(self.arguments(self.bracket())))
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

    def arguments(self, ranges: Sequence[tuple[int, int]]) -> list[Value]:
        """Return the values between commas; `args...` is all of a pack."""
        found: list[Value] = []
        for start, end in ranges:
            pack = end - start > 1 and self.source.tokens[end - 1].text == "..."
            value = self.sub(start, end - pack)
            if pack and isinstance(value, Items):
                found += value.values
            else:
                found.append(value)
        return found

    def variables(self, ranges: Sequence[tuple[int, int]], given: Sequence[Value]) -> list[str]:
        """Return the names of arguments that are variables, `x` or `&x`: a function may change their values."""
        if len(ranges) != len(given):
            return []
        names = []
        for start, end in ranges:
            start += self.source.tokens[start].text == "&"
            word = end == start + 1 and self.source.tokens[start].kind == "word"
            names.append(self.source.tokens[start].text if word else "")
        return names

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
        """Return the ranges between the commas of the bracket that opens here; the cursor moves past it."""
        if self.at >= self.end or self.peek_text() not in ("(", "[", "{"):
            raise NotFollowed
        start, close = self.at, self.source.close(self.at)
        self.at = close + 1
        return self.source.split(start + 1, close)

    def one(self) -> Value:
        """Return the value in a bracket that holds exactly one."""
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


def whole_number(value: Number, line: int) -> Value:
    """Convert to an integer, truncated as in C++."""
    if not value.floating:
        return value
    if value.constant is not None:
        return literal(int(value.constant))
    if value.text.startswith(("ceil(", "cdiv(")):
        return Number(value.tree)
    return Hole(f"`{value.text}` is truncated to an integer", line)


def _may_be_negative(value: Number) -> bool:
    if value.floating:
        return False
    nodes = list(ast.walk(value.tree))
    return any(isinstance(node, ast.USub) or (isinstance(node, ast.Constant) and node.value < 0) for node in nodes)  # type: ignore[operator]


def pick(condition: Number, first: Value, second: Value, line: int) -> Value:
    """Return `condition ? first : second`."""
    if condition.constant is not None:
        return first if condition.constant else second
    if isinstance(first, Number) and isinstance(second, Number):
        if any(isinstance(node, ast.Name) and node.id == ARGC for node in ast.walk(condition.tree)):
            return second  # as without arguments on the command line
        return choose(condition, first, second)
    if any(isinstance(node, ast.Name) and node.id == ARGC for node in ast.walk(condition.tree)):
        return first if isinstance(first, Number) else second
    if isinstance(first, Dim3) and isinstance(second, Dim3):
        width = max(len(first.sizes), len(second.sizes))
        pairs = zip(
            *((*each.sizes, *[literal(1)] * (width - len(each.sizes))) for each in (first, second)), strict=True
        )
        sizes = [pick(condition, a, b, line) for a, b in pairs]
        return Dim3(tuple(each if isinstance(each, Number) else Hole("a size of dim3", line) for each in sizes))
    if isinstance(first, Kernel) and isinstance(second, Kernel) and first == second:
        return first
    raise NotFollowed


def number(text: str) -> Number:
    """Return the value of a C++ literal."""
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
