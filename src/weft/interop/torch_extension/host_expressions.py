"""One expression of host code → a Value, by precedence climbing; what is not known is a Hole with its line."""

import ast
import re
from typing import TYPE_CHECKING

from weft.engines.element_types import CPP_TYPES

from .cpp_tokens import Source, Token
from .host_values import (
    Dim3,
    Hole,
    Items,
    Lambda,
    Number,
    Other,
    Pointer,
    Scope,
    Sizes,
    Value,
    binary,
    call,
    choose,
    compare,
    literal,
)

if TYPE_CHECKING:
    from .host_run import HostRun

INTEGER_TYPES = frozenset(
    ["int", "unsigned", "long", "short", "size_t", "int64_t", "int32_t", "uint32_t", "uint64_t", "bool", "char",
     "int16_t", "uint16_t", "uint8_t", "int8_t", "signed"]
)  # fmt: skip
FLOAT_TYPES = frozenset(["float", "double"])
_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "bool": 1, "e4m3": 1, "e5m2": 1}
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


class NotFollowed(Exception):
    """What stands here is beyond formulas; it becomes a Hole."""


def element_bytes(element: str) -> int | None:
    """Size of an element type of launch lines."""
    digits = re.sub(r"\D", "", element)
    return _BYTES.get(element, int(digits) // 8 if element[:1] in "iu" and digits else None)


class Reader:
    """Reads tokens start … end of a source in a scope."""

    def __init__(self, run: "HostRun", source: Source, start: int, end: int, scope: Scope) -> None:
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
            return self.run.line
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
                return self.run.size(value.tensor, index.constant)
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
