"""A kernel file with levers + a point → a plain file without levers and without the branches that they decide.

// weft: lever STAGES = 1 in 1, 2, 4        // weft: define STAGES = 2
#if COPY_async                          →   copy_async(tile);
copy_async(tile);
#else
copy(tile);
#endif
"""

import ast
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.errors import UsageError
from weft.engines.expressions import Expression
from weft.engines.launch_records import LeverLine

from .conditions import DIRECTIVE, NAME, decided, macros_of
from .space import Point, Space

_LINE = re.compile(r"^(\s*//+\s*weft\s*:\s*)(\w+)(\s+)(.*)$", re.IGNORECASE)
_SCALAR = re.compile(r"^([^=]+=\s*)(.+)$")
WIDTH = 117


@dataclass
class _Branch:
    """An open `#if`; `ours` if levers decide it."""

    line: int
    ours: bool
    taken: bool = False
    """Whether one of its parts was taken."""
    live: bool = True
    """Whether the current part is taken."""


def render(space: Space, point: Point) -> str:
    """Return the text of a plain CUDA file with its launch lines; raise UsageError if the point is not possible."""
    refused = space.refusal(point)
    if refused is not None:
        raise UsageError(f"{point.text} is not possible: {refused}")
    macros = macros_of(space.levers, point.defines)
    kept = _branches(space, macros)
    words = {word: macros[word] for lever in space.levers for word in lever.words}
    settled = {require.line for require in space.lines.requires if space.reads(require)}
    lines = [_settled(line, words) for number, line in kept if number not in settled]
    code = [line for line in lines if _keyword(line) != "lever"]
    used = {name for line in code for name in NAME.findall(line)}
    levers = {lever.name: lever for lever in space.levers}
    text = "\n".join(_head(space, point))
    for line in lines:
        match = _LINE.match(line)
        if match is None or match[2] != "lever":
            text += f"\n{line}"
            continue
        lever = levers[match[4].split("=")[0].strip()]
        if lever.name in used:
            text += f"\n{match[1]}{'define':<{len(match[2]) + len(match[3])}}{_stated(lever, point)}"
    return re.sub(r"\n(//\n){2,}", "\n//\n", re.sub(r"\n{3,}", "\n\n", text)) + "\n"


def _head(space: Space, point: Point) -> list[str]:
    origin = f"Made from {space.path.name} at {point.text}"
    return [f"// {line}" for line in textwrap.wrap(origin, WIDTH, break_long_words=False)] + ["//"]


def _stated(lever: LeverLine, point: Point) -> str:
    value = point[lever.name]
    return f'{lever.name} = "{value}"' if lever.words else f"{lever.name} = {value}"


def _keyword(line: str) -> str:
    match = _LINE.match(line)
    return match[2] if match else ""


def _branches(space: Space, macros: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return the remaining lines, with their numbers, after conditions on levers are decided."""
    kept: list[tuple[int, str]] = []
    open_branches: list[_Branch] = []
    for number, line in enumerate(space.source.splitlines(), 1):
        match = DIRECTIVE.match(line)
        if match is None:
            if all(branch.live for branch in open_branches):
                kept.append((number, line))
            continue
        place, keyword, condition = f"{space.path.name}:{number}", match[1], match[2]
        if keyword in ("if", "ifdef", "ifndef"):
            value = decided(condition, macros) if keyword == "if" else None
            branch = _Branch(number, value is not None, bool(value), value is not False)
            open_branches.append(branch)
        else:
            if not open_branches:
                raise UsageError(f"{place}: #{keyword} without an #if")
            branch = open_branches[-1]
            if keyword == "elif":
                _turn(branch, decided(condition, macros), place)
            elif keyword == "else" and branch.ours:
                branch.live, branch.taken = not branch.taken, True
            elif keyword == "endif":
                open_branches.pop()
        outside = [each for each in open_branches if each is not branch]
        if not branch.ours and all(each.live for each in outside):
            kept.append((number, line))
    if open_branches:
        raise UsageError(f"{space.path.name}:{open_branches[-1].line}: this #if is not closed")
    return kept


def _turn(branch: _Branch, value: bool | None, place: str) -> None:
    """Enter the next part of an `#if` chain."""
    if (value is not None) != branch.ours:
        raise UsageError(f"{place}: one #if chain is decided by levers, or by other macros, not by both; nest them")
    if branch.ours:
        branch.live = bool(value) and not branch.taken
        branch.taken = branch.taken or bool(value)


def _settled(line: str, words: Mapping[str, int]) -> str:
    """Return a line with 1 or 0 for the macros of words, and simplified formulas of scalars."""
    if not set(NAME.findall(line)) & set(words):
        return line
    match = _LINE.match(line)
    if match and match[2] == "scalar":
        declared = _SCALAR.match(match[4])
        assert declared is not None, "the launch lines were read before"
        tree = _folded(_Numbers(words).visit(Expression.parse(declared[2]).tree))
        return f"{match[1]}{match[2]}{match[3]}{declared[1]}{ast.unparse(tree)}"
    return NAME.sub(lambda name: str(words.get(name[0], name[0])), line)


class _Numbers(ast.NodeTransformer):
    def __init__(self, words: Mapping[str, int]) -> None:
        self.words = words

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self.words[node.id]) if node.id in self.words else node


def _folded(node: ast.expr) -> ast.expr:
    """Return the formula without products with 0 and 1, and without sums with 0."""
    if not isinstance(node, ast.BinOp):
        return node
    left, right = _folded(node.left), _folded(node.right)
    if isinstance(node.op, ast.Mult):
        if _is(left, 0) or _is(right, 1):
            return left
        if _is(right, 0) or _is(left, 1):
            return right
    if isinstance(node.op, ast.Add):
        if _is(left, 0):
            return right
        if _is(right, 0):
            return left
    return ast.BinOp(left, node.op, right)


def _is(node: ast.expr, number: int) -> bool:
    return isinstance(node, ast.Constant) and node.value == number
