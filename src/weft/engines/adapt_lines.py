"""Launch lines of a file → the same lines with the names and shapes that the caller uses for the arrays.

A task gives `q` as [B, H, N, D]; a file may call it `Q` and declare it [BH, N, D] or [B * H * N * D]. Both are one
contiguous array, so the file's line is rewritten: the task's name, the factors of a product as dimensions, sizes of 1
in front. Nothing is copied, and the kernel is launched with the same pointers and numbers.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from weft.core.errors import UsageError

from .expressions import Expression
from .launch_records import Argument, ArrayLine, DefineLine, LaunchLine, LaunchLines, MapArgument, ScalarLine, Struct

ONE = Expression.parse("1")


@dataclass(frozen=True)
class Wanted:
    """An array as the caller has it."""

    name: str
    """The caller's name."""
    own: str
    """The file's name."""
    rank: int | None
    """Number of dimensions; None: as in the file."""


def adapt_lines(lines: LaunchLines, wanted: tuple[Wanted, ...], file: str) -> LaunchLines:
    """Return the lines with the caller's names and ranks. Raises where a name is already used."""
    names = {each.own: each.name for each in wanted if each.own != each.name}
    items: tuple[ArrayLine | ScalarLine | DefineLine, ...] = (*lines.arrays, *lines.scalars, *lines.defines)
    declared = {*lines.sizes, *(item.name for item in items)}
    for own, name in names.items():
        if name in declared and name not in names:
            raise UsageError(f"{file}: {own} is the task's {name}, but {name} is declared too: rename one of them")
    ranks = {each.own: each.rank for each in wanted if each.rank is not None}
    arrays = tuple(
        replace(line, name=names.get(line.name, line.name), shape=_ranked(line, ranks.get(line.name)))
        for line in lines.arrays
    )
    launches = tuple(_renamed(launch, names) for launch in lines.launches)
    stated = tuple(
        replace(each, names=tuple(names.get(name, name) for name in each.names)) for each in lines.nondeterministic
    )
    return replace(lines, arrays=arrays, launches=launches, nondeterministic=stated)


def _ranked(line: ArrayLine, rank: int | None) -> tuple[Expression, ...]:
    if rank is None or len(line.shape) >= rank:
        return line.shape
    factors = tuple(factor for size in line.shape for factor in _factors(size.tree))
    shape = factors if len(factors) <= rank else line.shape
    return (*(ONE for _ in range(rank - len(shape))), *shape)


def _factors(tree: ast.expr) -> Iterator[Expression]:
    """`B * H * N` → B, H, N."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        yield from _factors(tree.left)
        yield from _factors(tree.right)
    else:
        yield Expression(ast.unparse(tree), tree)


def _renamed(launch: LaunchLine, names: Mapping[str, str]) -> LaunchLine:
    def formula(argument: Expression) -> Expression:
        name = names.get(argument.name)
        return Expression(name, ast.Name(name, ast.Load())) if name else argument

    def renamed(argument: Argument) -> Argument:
        if isinstance(argument, Struct):
            return Struct(tuple(formula(member) for member in argument.members))
        if isinstance(argument, MapArgument):
            return replace(argument, array=names.get(argument.array, argument.array))
        return formula(argument)

    return replace(launch, arguments=tuple(renamed(argument) for argument in launch.arguments))
