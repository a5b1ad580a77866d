"""A launch line's formula → C++ of the same value.

to_cpp(Expression.parse("cdiv(SQ, 64) * HQ"), floats=())  →  cdiv(SQ, 64) * HQ
to_cpp(Expression.parse("1 / sqrt(D)"), floats=())        →  1.0 / std::sqrt(static_cast<double>(D))

Names stand for variables or macros of the same name, `int64_t` unless they are among `floats`.
"""

import ast
from collections.abc import Collection, Mapping
from typing import NamedTuple

from weft.core.errors import UsageError
from weft.engines.expressions import Expression

INTEGER_FUNCTIONS = """\
// Python's integer division rounds down, C++'s towards zero.
[[maybe_unused]] inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
[[maybe_unused]] inline int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }
[[maybe_unused]] inline int64_t cdiv(int64_t a, int64_t b) { return -floor_div(-a, b); }
"""
"""Functions that translated formulas call; they also need <cmath>, <cstdint> and <algorithm>."""

_SIGNS: Mapping[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_INTEGER_CALLS: Mapping[type[ast.operator], str] = {ast.FloorDiv: "floor_div", ast.Mod: "floor_mod"}
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class _Cpp(NamedTuple):
    text: str
    is_float: bool
    compound: bool = False
    """Needs parentheses as an operand."""

    @property
    def operand(self) -> str:
        return f"({self.text})" if self.compound else self.text

    @property
    def as_double(self) -> str:
        """As an operand of floating-point arithmetic, as for Python's `/` and `sqrt` of integers."""
        if self.is_float:
            return self.operand
        return f"{self.text}.0" if self.text.isdecimal() else f"static_cast<double>({self.text})"


def to_cpp(formula: Expression, *, floats: Collection[str]) -> str:
    """Return the formula in C++; raises UsageError where C++ has no short equivalent."""
    return _translate(formula.tree, floats, formula.text).text


def _translate(node: ast.expr, floats: Collection[str], whole: str) -> _Cpp:
    def part(inner: ast.expr) -> _Cpp:
        return _translate(inner, floats, whole)

    match node:
        case ast.Constant(value=float() as number):
            return _Cpp(repr(number), True)
        case ast.Constant(value=int() as number):
            return _Cpp(str(number), False)
        case ast.Name(id=name):
            return _Cpp(name, name in floats)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = part(operand)
            return _Cpp(f"-{inner.operand}", inner.is_float, True)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return part(operand)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _Cpp(f"{part(left).as_double} / {part(right).as_double}", True, True)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
            a, b = part(left), part(right)
            return _Cpp(f"{a.operand} {_SIGNS[type(sign)]} {b.operand}", a.is_float or b.is_float, True)
        case ast.BinOp(left=left, op=division, right=right) if type(division) in _INTEGER_CALLS:
            a, b = part(left), part(right)
            if not (a.is_float or b.is_float):
                return _Cpp(f"{_INTEGER_CALLS[type(division)]}({a.text}, {b.text})", False)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [part(each) for each in (left, *others)]
            pairs = zip(ops, values, values[1:], strict=False)
            tests = [f"{a.operand} {_COMPARISONS[type(op)]} {b.operand}" for op, a, b in pairs]
            return _Cpp(" && ".join(tests), False, True)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, [part(each) for each in args], whole)
    raise UsageError(
        f"{ast.unparse(node)!r} in {whole!r} has no translation to C++; rewrite the launch line without it"
    )


def _call(name: str, args: list[_Cpp], whole: str) -> _Cpp:
    if name in ("min", "max"):
        if any(arg.is_float for arg in args) and not all(arg.is_float for arg in args):
            raise UsageError(f"{whole!r}: {name} of integers and floats together has no single type in C++")
        kind = "double" if args[0].is_float else "int64_t"
        text = args[0].text
        for arg in args[1:]:
            text = f"std::{name}<{kind}>({text}, {arg.text})"
        return _Cpp(text, args[0].is_float)
    if name == "cdiv":
        if any(arg.is_float for arg in args):
            raise UsageError(f"{whole!r}: cdiv takes integers")
        return _Cpp(f"cdiv({args[0].text}, {args[1].text})", False)
    if name == "ceil":
        return _Cpp(f"static_cast<int64_t>(std::ceil({args[0].text}))", False) if args[0].is_float else args[0]
    if name in ("sqrt", "log2"):
        inside = args[0].text if args[0].is_float else args[0].as_double
        return _Cpp(f"std::{name}({inside})", True)
    raise UsageError(f"{whole!r}: {name} has no translation to C++")
