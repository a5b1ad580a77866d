"""`if (D == 64) k<64><<<…>>> else if (D == 128) k<128><<<…>>>` → one launch of `k<{D}>`."""

import ast
from collections.abc import Sequence
from dataclasses import fields, replace

from .host_values import Dim3, Hole, HostLaunch, Items, Number, Pointer, Record, either, opposite, truth

Way = tuple[Number | None, list[HostLaunch]]
"""A condition (None for `else`) and its launches."""


def merge_launches(
    ways: Sequence[Way], line: int, required: list[Number], *, unknown: bool = False
) -> list[HostLaunch]:
    """Return the launches of all branches: one launch with a formula for its template arguments where that is
    equivalent, else each under its condition.

    Conditions that must hold are added to `required`; `unknown`: one of them cannot be followed.
    """
    some = [way for way in ways if way[1]]
    if not some:
        return []
    if len(ways) == 1 and ways[0][0] is None:
        return some[0][1]
    if unknown or any(condition is None for condition, _ in ways[:-1]):
        return _with_caveat(some[0][1], line)
    always = all(condition is not None for condition, _ in some) or len(some) == len(ways)
    return (_as_one(some, required) if always else []) or _each_under_its_condition(ways)


def _as_one(some: Sequence[Way], required: list[Number]) -> list[HostLaunch]:
    """Return one launch for all; empty if they differ in more than template arguments that the conditions choose."""
    first = some[0][1]
    if len(some) == 1 or any(len(launches) != len(first) for _, launches in some):
        return []
    merged, needed = [], list[Number]()
    for rank, launch in enumerate(first):
        others = [launches[rank] for _, launches in some]
        if len({other.kernel for other in others}) > 1 or any(not _alike(launch, other) for other in others):
            return []
        template = _template([condition for condition, _ in some], [other.template for other in others], needed)
        if template is None:
            return []
        merged.append(replace(launch, template=template))
    required += needed
    _require_one(some, required)
    return merged


def _each_under_its_condition(ways: Sequence[Way]) -> list[HostLaunch]:
    found: list[HostLaunch] = []
    before: tuple[Number, ...] = ()
    for condition, launches in ways:
        holds = before if condition is None else (*before, truth(condition))
        found += [replace(launch, when=(*holds, *launch.when)) for launch in launches]
        if condition is not None and not _excludes(condition, [other for other, _ in ways if other is not condition]):
            before = (*before, opposite(condition))
    return found


def _excludes(condition: Number, others: Sequence[Number | None]) -> bool:
    """Whether the condition excludes all other branches: `D == 64` and `D == 128`, and there is no `else`."""
    mine = _values(condition.tree)
    theirs = [_values(other.tree) if other is not None else None for other in others]
    return mine is not None and all(
        each is not None and each[0] == mine[0] and not each[1] & mine[1] for each in theirs
    )


def _values(tree: ast.expr) -> tuple[str, frozenset[object]] | None:
    """Return D and its two values for `D == 32 || D == 64`."""
    match tree:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
            return ast.unparse(left), frozenset([value])
        case ast.Call(func=ast.Name(id="max"), args=parts):
            found = [_values(part) for part in parts]
            if all(each is not None and each[0] == found[0][0] for each in found):  # type: ignore[index]
                return found[0][0], frozenset(value for each in found for value in each[1])  # type: ignore[index]
    return None


def _with_caveat(launches: Sequence[HostLaunch], line: int) -> list[HostLaunch]:
    caveat = Hole("a condition decides what is launched: these are the lines of its first branch", line)
    return [replace(launch, caveat=launch.caveat or caveat) for launch in launches]


def _alike(a: HostLaunch, b: HostLaunch) -> bool:
    plain = (a.grid, a.block, a.shared, a.arguments, len(a.template), a.caveat, a.when)
    other = (b.grid, b.block, b.shared, b.arguments, len(b.template), b.caveat, b.when)
    return spelled(plain) == spelled(other)


def spelled(value: object) -> object:
    """Return a comparable value: syntax trees are compared by their text."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, tuple):
        return tuple(spelled(each) for each in value)
    if isinstance(value, Pointer):  # two host variables may point to the same memory with different types
        return ("pointer", id(value.tensor))
    if isinstance(value, Dim3 | Items | HostLaunch | Record):
        return (type(value).__name__, *(spelled(getattr(value, each.name)) for each in fields(value)))
    return value


def _equality(condition: Number | None) -> tuple[str, str] | None:
    """Return the two sides of `D == 64`."""
    match condition.tree if condition is not None else None:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
            return ast.unparse(left), str(value)
    return None


def _template(
    conditions: Sequence[Number | None], templates: Sequence[tuple[str, ...]], required: list[Number]
) -> tuple[str, ...] | None:
    merged = []
    for column in zip(*templates, strict=True):
        if len(set(column)) == 1:
            merged.append(column[0])
            continue
        one = conditions[0]
        if list(column) == ["true", "false"] and one is not None:
            merged.append(f"{{{one.text if isinstance(one.tree, ast.Compare) else f'{one.text} != 0'}}}")
            continue
        sides = [_equality(condition) for condition in conditions]
        name = next((side[0] for side in sides if side is not None), None)
        if name is None:
            return None
        for side, argument in zip(sides, column, strict=True):
            if argument != f"{{{name}}}" and (side is None or side != (name, argument)):
                return None
        merged.append(f"{{{name}}}")
    return tuple(merged)


def _require_one(ways: Sequence[Way], required: list[Number]) -> None:
    """Require one of the conditions: a chain without a last `else` launches nothing for other sizes."""
    conditions = [condition for condition, _ in ways]
    if all(condition is not None for condition in conditions):
        one = conditions[0]
        assert one is not None
        for condition in conditions[1:]:
            assert condition is not None
            one = either(one, condition)
        required.append(one)
