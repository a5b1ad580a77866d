"""Arithmetic in launch lines: parsed with Python's grammar, evaluated by a table of allowed operations.

Expression.parse("cdiv(S, 64) * H").value({"S": 500, "H": 8})  →  64
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.core.errors import UsageError

Number = int | float
"""A bool is an int here, as in C++."""

HOLE = "???"
"""What a draft has where a formula is missing."""
LARGEST = 1 << 63
"""Integers must fit in 64 bits, so that every formula is cheap to evaluate."""


def _cdiv(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        raise UsageError("cdiv takes integers")
    return -(-a // b)


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: Mapping[str, tuple[Callable[..., Number], int, int]] = {
    "min": (min, 2, 8),
    "max": (max, 2, 8),
    "cdiv": (_cdiv, 2, 2),
    "sqrt": (math.sqrt, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "log2": (math.log2, 1, 1),
}
"""Name → the function, and the least and most arguments it takes."""


@dataclass(frozen=True)
class Expression:
    """A checked formula. `text` is the text in the file."""

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> "Expression":
        """Read a formula; raises UsageError for anything except arithmetic."""
        stripped = text.strip()
        if not stripped:
            raise UsageError("a formula is missing")
        try:
            tree = ast.parse(stripped, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            missing = ": replace each ???" * (HOLE in stripped)
            raise UsageError(f"{stripped!r} is not a formula{missing}") from error
        _check(tree, stripped)
        return cls(stripped, tree)

    @property
    def name(self) -> str:
        """The name, if the formula is only a name; else empty."""
        return self.tree.id if isinstance(self.tree, ast.Name) else ""

    @property
    def names(self) -> frozenset[str]:
        """Every name it reads."""
        nodes = list(ast.walk(self.tree))
        functions = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        names = (node for node in nodes if isinstance(node, ast.Name))
        return frozenset(node.id for node in names if id(node) not in functions)

    def value(self, names: Mapping[str, Number | str]) -> Number:
        """Return the result for these names."""
        try:
            return _evaluate(self.tree, names)
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise UsageError(f"{self.text!r} has no value: {error}") from error

    def integer(self, names: Mapping[str, Number | str], what: str) -> int:
        """Return the result, which must be an integer; `what` names it in the error message."""
        value = self.value(names)
        if isinstance(value, float):
            raise UsageError(f"{what}: {self.text!r} is {value}, not an integer; use //, cdiv or ceil")
        return int(value)


def _check(node: ast.expr, text: str) -> None:
    """Raise for nodes that `_evaluate` does not support."""
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float()):
            return
        case ast.Name():
            return
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _check(operand, text)
        case ast.BinOp(left=left, op=binary, right=right) if type(binary) in _BINARY:
            _check(left, text)
            return _check(right, text)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            for part in (left, *others):
                _check(part, text)
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            _, least, most = FUNCTIONS[name]
            if not least <= len(args) <= most:
                count = str(least) if least == most else f"{least} to {most}"
                raise UsageError(f"{name} takes {count} arguments: {text!r}")
            for part in args:
                _check(part, text)
            return
    known = ", ".join(FUNCTIONS)
    allowed = f"numbers, names, + - * / // % **, comparisons, {known}"
    raise UsageError(f"{ast.unparse(node)!r} is not allowed in a formula: {allowed}")


def _evaluate(node: ast.expr, names: Mapping[str, Number | str]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as literal):
            return _bounded(literal)
        case ast.Name(id=name):
            return _bounded(_look_up(name, names))
        case ast.UnaryOp(op=op, operand=operand):
            return _bounded(_UNARY[type(op)](_evaluate(operand, names)))
        case ast.BinOp(left=left, op=binary, right=right):
            a, b = _evaluate(left, names), _evaluate(right, names)
            if isinstance(binary, ast.Pow) and abs(b) > 64:
                raise UsageError(f"the exponent {b} in {ast.unparse(node)!r} is above 64")
            return _bounded(_BINARY[type(binary)](a, b))
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_evaluate(part, names) for part in (left, *others)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _bounded(FUNCTIONS[name][0](*(_evaluate(part, names) for part in args)))
    raise UsageError(f"{ast.unparse(node)!r} is not a formula")


def _look_up(name: str, names: Mapping[str, Number | str]) -> Number:
    if name not in names:
        known = ", ".join(names) or "none"
        raise UsageError(f"{name!r} is not a size, define or scalar; known names: {known}")
    value = names[name]
    if isinstance(value, str):
        raise UsageError(f"{name} is the text {value!r}, not a number")
    return value


def _bounded(value: Any) -> Number:
    if isinstance(value, complex):
        raise UsageError("square root of a negative number")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise UsageError("an integer does not fit in 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError("a number is not finite")
    number: Number = value
    return number
