"""`if (D == 64) k<64><<<…>>> else if (D == 128) k<128><<<…>>>` → one launch of `k<{D}>`."""

import ast
from collections.abc import Sequence
from dataclasses import replace

from .host_values import Hole, HostLaunch, Number, call, compare, literal

Way = tuple[Number | None, list[HostLaunch]]
"""A condition, None for `else`, and what is launched then."""


def merge_launches(
    ways: Sequence[Way], line: int, required: list[Number], *, unknown: bool = False
) -> list[HostLaunch]:
    """The launches of all ways as one list; where they cannot be one, those of the first, in doubt.

    Conditions that must hold for it are added to `required`; `unknown`: one of them cannot be followed.
    """
    some = [way for way in ways if way[1]]
    if not some:
        return []
    first = some[0][1]
    if unknown:
        return _doubted(first, line)
    if len(some) == 1:
        if len(ways) > 1 or some[0][0] is not None:
            return _only(some[0], ways, line, required)
        return first
    if any(len(launches) != len(first) for _, launches in some):
        return _doubted(first, line)
    merged = []
    for rank, launch in enumerate(first):
        others = [launches[rank] for _, launches in some]
        if len({other.kernel for other in others}) > 1 or any(not _alike(launch, other) for other in others):
            return _doubted(first, line)
        template = _template([condition for condition, _ in some], [other.template for other in others], required)
        if template is None:
            return _doubted(first, line)
        merged.append(replace(launch, template=template))
    _require_one(some, required)
    return merged


def _only(way: Way, ways: Sequence[Way], line: int, required: list[Number]) -> list[HostLaunch]:
    """Launched under a condition, or not at all: the condition is taken to hold."""
    condition, launches = way
    if condition is not None:
        required.append(condition)
        return launches
    others = [other for other, _ in ways if other is not None]
    if len(others) == len(ways) - 1 and others:
        required += [compare(ast.Eq, other, literal(0)) for other in others]
        return launches
    return _doubted(launches, line)


def _doubted(launches: Sequence[HostLaunch], line: int) -> list[HostLaunch]:
    doubt = Hole("a condition decides what is launched: these are the lines of its first branch", line)
    return [replace(launch, doubt=launch.doubt or doubt) for launch in launches]


def _alike(a: HostLaunch, b: HostLaunch) -> bool:
    plain = (a.grid, a.block, a.shared, a.arguments, len(a.template), a.doubt)
    other = (b.grid, b.block, b.shared, b.arguments, len(b.template), b.doubt)
    return _spelled(plain) == _spelled(other)


def _spelled(value: object) -> object:
    """Comparable: syntax trees are equal by their text."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, tuple):
        return tuple(_spelled(each) for each in value)
    sizes = getattr(value, "sizes", None)
    return _spelled(sizes) if isinstance(sizes, tuple) else value


def _equality(condition: Number | None) -> tuple[str, str] | None:
    """`D == 64` → its two sides."""
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
    """A chain without a last `else` launches nothing for other sizes."""
    conditions = [condition for condition, _ in ways]
    if all(condition is not None for condition in conditions):
        either = conditions[0]
        assert either is not None
        for condition in conditions[1:]:
            assert condition is not None
            either = call("max", either, condition)
        required.append(either)
