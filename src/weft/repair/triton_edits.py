"""Small edits of a Triton file, all of them in one text: an argument of the kernel chooses the one that takes effect.

    offsets = block * (BLOCK + 1)  →  offsets = block * (BLOCK + tl.where(weft_edit == 3, 0, 1))

Triton has no build without optimisations, so the edits are made in its source. A text is compiled once for all of them,
and testing one is a launch. Only values that the kernel computes are edited: a shape, an axis or a type is part of the
program, and another one would not compile next to the right one.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeGuard

from .templates import Kind

CHOICE = "weft_edit"
"""The first argument of every kernel with edits: 0 is the kernel as it is, n the n-th edit."""
UNEDITED = 3
"""Its value while launches are bound: Triton compiles a multiple of 16, or 1, as a special case."""

_LAUNCH = re.compile(r"^(#\s*weft:\s*launch\s+(?P<name>\w+)\s*(?:<.*?>)?\s*\()", re.MULTILINE)
_OPEN = re.compile(r"[^\w\])]\s*\($")
"""A bracket that is not that of a call."""
_COMPARISONS: Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,),
}  # fmt: skip
_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Add: "+", ast.Sub: "-",
    ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
_NEUTRAL: Mapping[type[ast.operator], str] = {
    ast.Add: "0", ast.Sub: "0", ast.Mult: "1", ast.BitAnd: "True", ast.BitOr: "False",
}  # fmt: skip
"""What an operand is replaced by to leave it out."""
_SWAPPED = {
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "exp2": "exp", "exp": "exp2",
    "log2": "log", "log": "log2",
}  # fmt: skip
_VALUES: Mapping[str, tuple[int, ...]] = {
    "load": (0,), "store": (0, 1), "where": (0, 1, 2), "maximum": (0, 1), "minimum": (0, 1), "dot": (0, 1, 2),
    "fma": (0, 1, 2), "div_rn": (0, 1), "range": (0, 1), "full": (1,), "max": (0, 1), "min": (0, 1),
    **dict.fromkeys(("sum", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "cdiv"), (0,)),
}  # fmt: skip
"""Function → its arguments that are values of the kernel."""
_INTEGERS = ("int8", "int16", "int32", "int64")
_AXES = 3

Node = tuple[str, int]
"""A function, and the number of an expression in it."""


@dataclass(frozen=True)
class TritonEdit:
    """One edit: of the text, and of the value of an expression."""

    line: int
    function: str
    kind: Kind
    words: str
    text: str
    """The file with the edit."""
    at: Node
    value: str
    """The edited value: an expression in which `{x}` is the value as it is, or `{0}`, `{1}` its operands."""


class TritonText:
    """A Triton file, and all edits of its kernels."""

    def __init__(self, text: str, arguments: Mapping[str, Sequence[str]] = {}) -> None:
        """`arguments` are those of the launch lines: kernel → a type for each, `*` before that of a pointer."""
        self.text, self.tree = text, ast.parse(text)
        self.lines = text.splitlines(keepends=True)
        self.starts = list(accumulate(map(len, self.lines), initial=0))
        self.jitted = {each.name: each for each in self.tree.body if _is_jitted(each)}
        self.arguments = arguments

    def edits(self) -> list[TritonEdit]:
        """Return the edits of all jitted functions, in the order of the file."""
        return [edit for function in self.jitted.values() for edit in _Edits(self, function).all()]

    def changed(self, edits: Collection[TritonEdit]) -> set[str]:
        """Return the functions with edits, and those that call them."""
        found = {edit.function for edit in edits}
        calls = {name: _names(function) & self.jitted.keys() for name, function in self.jitted.items()}
        while more := {name for name, called in calls.items() if called & found} - found:
            found |= more
        return found

    def switched(self, edits: Sequence[TritonEdit]) -> str:
        """Return the text with all edits; the n-th, counted from 1, takes effect if the argument is n."""
        changed = self.changed(edits)
        by_node: defaultdict[Node, list[tuple[int, TritonEdit]]] = defaultdict(list)
        for number, edit in enumerate(edits, 1):
            by_node[edit.at].append((number, edit))
        tree = ast.parse(self.text)
        for function in filter(_is_jitted, tree.body):
            if function.name in changed:
                _Switch(function, by_node, changed).write()
        comments = "".join(line for line in self.lines if line.startswith("#"))

        def with_choice(match: re.Match[str]) -> str:
            return f"{match[1]}{CHOICE}, " if match["name"] in changed else match[1]

        scalar = f"# weft: scalar {CHOICE} : i32 = {UNEDITED}\n"
        return scalar + _LAUNCH.sub(with_choice, comments) + ast.unparse(tree) + "\n"

    def put(self, node: ast.expr | ast.stmt, new: str) -> str:
        """Return the file with `new` in place of a node."""
        part = self._part(node)
        before, behind = self.text[: part.start], self.text[part.stop :]
        if new.isidentifier() and _OPEN.search(before) and behind.startswith(")"):  # brackets around one name
            return before[:-1] + new + behind[1:]
        return before + new + behind

    def spelled(self, node: ast.expr) -> str:
        return self.text[self._part(node)]

    def _part(self, node: ast.expr | ast.stmt) -> slice:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return slice(self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset))

    def _offset(self, line: int, column: int) -> int:
        """Return the place of a column, which counts bytes of UTF-8, in the text."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())


class _Edits:
    """The edits of one function."""

    def __init__(self, file: TritonText, function: ast.FunctionDef) -> None:
        self.file, self.function = file, function
        self.numbers = _numbered(function)
        self.found: list[TritonEdit] = []
        self.left_out: dict[int, str] = {}
        """Operand → the value with which it has no effect."""
        types = file.arguments.get(function.name, ())
        self.alike, self.pointers = _alike(function, types), _pointers(function, types)
        self.in_loop = {id(each) for loop in ast.walk(function) if isinstance(loop, ast.For) for each in ast.walk(loop)}

    def all(self) -> list[TritonEdit]:
        for statement in _statements(self.function):
            for expression in _edited(statement):
                self._visit(expression)
            self._assignment(statement)
        return self.found

    def _add(self, node: ast.expr, kind: Kind, words: str, new: tuple[str, str], whole: ast.expr | None = None) -> None:
        """Add an edit of a node: `new` is its text, in place of `whole`, and its value."""
        spelled, value = new
        text = self.file.put(whole or node, spelled)
        at = self.function.name, self.numbers[id(node)]
        self.found.append(TritonEdit(node.lineno, self.function.name, kind, words, text, at, value))

    def _visit(self, node: ast.expr) -> None:
        spelled = self.file.spelled
        match node:
            case ast.Constant(value=bool() | None | str()):
                return
            case ast.Constant(value=int(value)):
                for integer in (value - 1, value + 1):
                    if self.left_out.get(id(node)) == str(integer):
                        continue  # the same as leaving it out
                    self._add(node, Kind.CONSTANT, f"{value} → {integer}", (str(integer), str(integer)))
            case ast.Constant(value=float(value)):
                for number in (0.0, 1.0):
                    if number != value:
                        self._add(node, Kind.CONSTANT, f"{value} → {number}", (str(number), str(number)))
            case ast.Name(id=name):
                known = {*_parameters(self.function), *_assigned_before(self.function, node)}
                for other in (each for each in self.alike.get(name, ()) if each in known):
                    self._add(node, Kind.OPERAND, f"{name} → {other}", (other, other))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for kind in _COMPARISONS.get(type(op), ()):
                    sign = _SIGNS[kind]
                    new = f"{spelled(left)} {sign} {spelled(right)}", f"{{0}} {sign} {{1}}"
                    self._add(node, Kind.OPERATION, f"{_SIGNS[type(op)]} → {sign}", new)
            case ast.BinOp(left=left, op=op, right=right):
                self._operation(node, left, op, right)
            case ast.Call():
                self._call(node)
        for child in _children(node, self.file.jitted):
            self._visit(child)

    def _operation(self, node: ast.BinOp, left: ast.expr, op: ast.operator, right: ast.expr) -> None:
        spelled, sign = self.file.spelled, _SIGNS.get(type(op), "")
        words = f"{spelled(node)} → "
        if isinstance(op, ast.Add | ast.Sub):
            other = "-" if sign == "+" else "+"
            new = f"{spelled(left)} {other} {_bracketed(right, spelled)}", "-({x})"
            self._add(right, Kind.OPERATION, f"{sign} → {other}", new, node)
        if isinstance(op, ast.FloorDiv | ast.Mod):
            other = "%" if sign == "//" else "//"
            new = f"{spelled(left)} {other} {spelled(right)}", f"{{0}} {other} {{1}}"
            self._add(node, Kind.OPERATION, f"{sign} → {other}", new)
        neutral = _NEUTRAL.get(type(op))
        if neutral is not None:
            self.left_out[id(right)] = neutral
            self._add(right, Kind.TERM, f"{words}{spelled(left)}", (_bracketed(left, spelled), neutral), node)
            if not isinstance(op, ast.Sub) and _base(left) not in self.pointers:
                self._add(left, Kind.TERM, f"{words}{spelled(right)}", (_bracketed(right, spelled), neutral), node)

    def _call(self, node: ast.Call) -> None:
        name, spelled = _called(node), self.file.spelled
        if name in _SWAPPED and node.args:
            other = _SWAPPED[name]
            function = spelled(node.func)
            new = f"{function.removesuffix(name)}{other}"
            rest = spelled(node).removeprefix(function)
            slots = ", ".join(f"{{{number}}}" for number in range(len(node.args)))
            more = "".join(f", {each.arg}={ast.unparse(each.value)}" for each in node.keywords)
            self._add(node, Kind.CALL, f"{name} → {other}", (f"{new}{rest}", f"{new}({slots}{more})"))
        if name in ("program_id", "num_programs") and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            for axis in range(_AXES):
                if axis != node.args[0].value:
                    new = f"{spelled(node.func)}({axis})"
                    self._add(node, Kind.CONSTANT, f"axis {node.args[0].value!r} → {axis}", (new, new))
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Attribute(value=x, attr="to")) as cut, attr="to")):
                if cut.args and spelled(cut.args[0]).rpartition(".")[2] in _INTEGERS:
                    self._add(cut, Kind.OPERATION, "without cutting to an integer", (spelled(x), "{0}"))

    def _assignment(self, statement: ast.stmt) -> None:
        """Add an assignment in place of a sum, and a sum in place of an assignment inside a loop."""
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                text = f"{name} = {self.file.spelled(value)}"
                self._add_statement(statement, value, "+= → =", text, f"{{x}} - {name}")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if id(statement) in self.in_loop:
                if name in _assigned_before(self.function, statement) and name not in _names(value):
                    text = f"{name} += {self.file.spelled(value)}"
                    self._add_statement(statement, value, "= → +=", text, f"{{x}} + {name}")

    def _add_statement(self, statement: ast.stmt, value: ast.expr, words: str, text: str, new: str) -> None:
        at = self.function.name, self.numbers[id(value)]
        changed = self.file.put(statement, text)
        self.found.append(TritonEdit(statement.lineno, self.function.name, Kind.VALUE, words, changed, at, new))


class _Switch:
    """Writes the edits of one function into its tree."""

    def __init__(
        self,
        function: ast.FunctionDef,
        edits: Mapping[Node, Sequence[tuple[int, TritonEdit]]],
        changed: Collection[str],
    ) -> None:
        self.function, self.edits, self.changed = function, edits, changed
        self.numbers = _numbered(function)
        self.kept = 0
        self.before: list[ast.stmt] = []

    def write(self) -> None:
        function = self.function
        function.body = self._block(function.body)
        function.args.args.insert(0, ast.arg(CHOICE))

    def _block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            for name in ("body", "orelse"):
                if isinstance(getattr(statement, name, None), list):
                    setattr(statement, name, self._block(getattr(statement, name)))
            self.before = []
            for owner, field, index in _fields_of(statement):
                held = getattr(owner, field)
                if index is None:
                    setattr(owner, field, self._value(held))
                else:
                    held[index] = self._value(held[index])
            out += [*self.before, statement]
        return out

    def _value(self, node: ast.expr) -> ast.expr:
        """Return an expression with its edits. What several of them use is computed once, before the statement."""
        number = self.numbers.get(id(node))
        here = self.edits.get((self.function.name, number), ()) if number is not None else ()
        for owner, field, index in _fields_of(node):
            held = getattr(owner, field)
            if index is None:
                setattr(owner, field, self._value(held))
            else:
                held[index] = self._value(held[index])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.changed:
            node.args.insert(0, ast.Name(CHOICE))
        if not here:
            return node
        operands: list[str] = []
        if any("{0}" in edit.value for _, edit in here):
            operands = self._operands(node)
        value = ast.unparse(node)
        if any("{x}" in edit.value for _, edit in here):
            value = self._keep(node)
        for choice, edit in here:
            new = edit.value.format(*operands, x=value)
            value = f"tl.where({CHOICE} == {choice}, {new}, {value})"
        return ast.parse(value, mode="eval").body

    def _operands(self, node: ast.expr) -> list[str]:
        match node:
            case ast.Compare(left=left, comparators=[right]):
                node.left, node.comparators = self._kept(left), [self._kept(right)]
                return [ast.unparse(node.left), ast.unparse(node.comparators[0])]
            case ast.BinOp(left=left, right=right):
                node.left, node.right = self._kept(left), self._kept(right)
                return [ast.unparse(node.left), ast.unparse(node.right)]
            case ast.Call(func=ast.Attribute(value=value, attr="to") as method):
                method.value = self._kept(value)
                return [ast.unparse(method.value)]
            case ast.Call():
                node.args = [self._kept(each) for each in node.args]
                return [ast.unparse(each) for each in node.args]
        return []

    def _kept(self, node: ast.expr) -> ast.expr:
        return node if isinstance(node, ast.Name | ast.Constant) else ast.Name(self._keep(node))

    def _keep(self, node: ast.expr) -> str:
        self.kept += 1
        name = f"weft_{self.kept}"
        self.before += ast.parse(f"{name} = {ast.unparse(node)}").body
        return name


Field = tuple[ast.AST, str, int | None]


def _fields_of(node: ast.AST) -> list[Field]:
    """Return where the expressions are whose values may be edited: of a statement, or inside an expression."""
    found: list[Field] = []
    match node:
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Return() if getattr(node, "value", None) is not None:
            found = [(node, "value", None)]
        case ast.For():
            found = [(node, "iter", None)]
        case ast.Compare(comparators=[_]):
            found = [(node, "left", None), (node, "comparators", 0)]
        case ast.BinOp():
            found = [(node, "left", None), (node, "right", None)]
        case ast.UnaryOp():
            found = [(node, "operand", None)]
        case ast.IfExp():
            found = [(node, "body", None), (node, "orelse", None)]
        case ast.Subscript() | ast.Attribute():
            found = [(node, "value", None)] if not _is_module(node) else []
        case ast.Tuple(elts=elements):
            found = [(node, "elts", index) for index in range(len(elements))]
        case ast.Call(func=function, args=args, keywords=keywords):
            if isinstance(function, ast.Attribute) and not _is_module(function):
                found = [(function, "value", None)]
            name = _called(node)
            known = (
                range(len(args)) if isinstance(function, ast.Name) and name not in _VALUES else _VALUES.get(name, ())
            )
            known = known if name != "static_range" else ()
            found += [(node, "args", index) for index in known if index < len(args)]
            found += [(keyword, "value", None) for keyword in keywords if keyword.arg == "mask"]
    return found


def _children(node: ast.expr, jitted: Mapping[str, ast.FunctionDef]) -> Iterator[ast.expr]:
    """Yield the expressions inside, without constants that a function needs to be compiled."""
    for owner, field, index in _fields_of(node):
        held = getattr(owner, field)
        child = held if index is None else held[index]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in jitted:
            parameters = jitted[node.func.id].args.args
            if index is None or index >= len(parameters) or parameters[index].annotation is not None:
                continue
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in _VALUES:
            continue
        yield child


def _edited(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions of a statement; a condition is none, as most are about constants."""
    for owner, field, _ in _fields_of(statement):
        yield getattr(owner, field)


def _statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            yield node


def _numbered(function: ast.FunctionDef) -> dict[int, int]:
    """Return the number of each expression: the same for every tree of one text."""
    return {id(node): number for number, node in enumerate(ast.walk(function)) if isinstance(node, ast.expr)}


def _is_jitted(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(each) for each in node.decorator_list)


def _is_module(node: ast.expr) -> bool:
    """Whether it is a name of Triton's module: `tl.float32`, `tl.math.exp2`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("tl", "triton", "libdevice")


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _assigned_before(function: ast.FunctionDef, node: ast.expr | ast.stmt) -> set[str]:
    before = [each for each in _statements(function) if each.lineno < node.lineno]
    return {
        name.id
        for each in before
        if isinstance(each, ast.Assign)
        for target in each.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def _base(node: ast.expr) -> str:
    """Return the name that a sum starts with: a pointer, if the sum is an address."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def _parameters(function: ast.FunctionDef) -> list[str]:
    """Return its parameters that are no constants."""
    return [each.arg for each in function.args.args if each.annotation is None]


def _pointers(function: ast.FunctionDef, types: Sequence[str]) -> set[str]:
    """Return the names of pointers: arguments, what loads and stores start with, and sums with these."""
    found = {name for name, kind in zip(_parameters(function), types, strict=False) if kind.startswith("*")}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _called(node) in ("load", "store") and node.args:
            found.add(_base(node.args[0]))
    for statement in _statements(function):
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = list(zip(targets, values, strict=False))
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case _:
                continue
        found |= {name.id for name, value in pairs if isinstance(name, ast.Name) and _base(value) in found}
    return found - {""}


def _bracketed(node: ast.expr, spelled: Callable[[ast.expr], str]) -> str:
    return f"({spelled(node)})" if isinstance(node, ast.BinOp | ast.Compare) else spelled(node)


def _alike(function: ast.FunctionDef, types: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return name → the names that may stand in its place: arguments of one type, and indices that are converted to the
    same type. Other variables may be tiles of different shapes.
    """
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name, kind in zip(_parameters(function), types, strict=False):
        groups[f"argument {kind}"].append(name)
    for statement in _statements(function):
        match statement:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(func=ast.Attribute(attr="to"), args=[to])):
                kind = ast.unparse(to).rpartition(".")[2]
                if kind in _INTEGERS and variable not in groups[kind]:
                    groups[kind].append(variable)
    return {name: tuple(other for other in names if other != name) for names in groups.values() for name in names}
