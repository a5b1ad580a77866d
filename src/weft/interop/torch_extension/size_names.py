"""Sizes of a host function: one name for sizes that must be equal, and default values that its checks accept."""

import ast
import keyword
from collections.abc import Iterable, Mapping, Sequence

from weft.core.errors import UsageError
from weft.engines.expressions import FUNCTIONS, Expression

from .host_values import Facts, Number

_TRIED = (64, 128, 32, 256, 16, 8, 4, 2, 1, 512, 1024, 80, 96, 3, 5, 0, 2048, 2560, 4096)
_MOST_TRIES = 20_000


def infer_ranks(facts: Facts, given: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return tensor → its number of dimensions, as far as the host code states or reads them."""
    ranks = dict(facts.ranks)
    for name, axes in facts.axes.items():
        read = max(axes) + 1 if max(axes) >= 0 else -min(axes) + (name in facts.counted)
        ranks[name] = max(ranks.get(name, 0), read)
    for name in facts.counted:
        ranks.setdefault(name, 1)
    ranks |= {name: len(shape) for name, shape in given.items()}
    for one, other in [*facts.alike, *facts.alike]:
        for a, b in ((one, other), (other, one)):
            if a.name not in ranks and b.name in ranks:
                ranks[a.name] = ranks[b.name]
    return ranks


def join_equal(facts: Facts, ranks: Mapping[str, int]) -> dict[str, str]:
    """Return size → the representative of all sizes that are equal to it."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while name in leader:
            name = leader[name]
        return name

    pairs = list(facts.equal)
    for one, other in facts.alike:
        for axis in range(min(ranks.get(one.name, 0), ranks.get(other.name, 0))):
            pairs.append((f"{one.name}__{axis}", f"{other.name}__{axis}"))
    for a, b in pairs:
        first, second = find(a), find(b)
        if first != second:
            # A size that the host has a variable for is preferred.
            low, high = (second, first) if first in facts.spoken or second not in facts.spoken else (first, second)
            leader[low] = high
    return {name: find(name) for name in leader}


def choose_names(sizes: Iterable[str], spoken: Mapping[str, str], taken: Iterable[str]) -> dict[str, str]:
    """Return size → its name in launch lines: the host's variable, else tensor and axis."""
    used = {*taken, *FUNCTIONS}
    names: dict[str, str] = {}
    for size in sizes:
        wish = spoken.get(size, "")
        if not wish or wish in used or keyword.iskeyword(wish):
            wish = size.replace("__", "_")
        while wish in used:
            wish += "_"
        used.add(wish)
        names[size] = wish
    return names


class _Rename(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id))


def rename(text: str, names: Mapping[str, str]) -> str:
    """Return a formula with its names replaced."""
    return ast.unparse(_Rename(names).visit(ast.parse(text, mode="eval").body))


def default_sizes(
    first: Mapping[str, int], required: Sequence[Number], names: Mapping[str, str], known: Mapping[str, int | float]
) -> dict[str, int] | None:
    """Return values that every condition accepts, the first guess where possible; None if none is found."""
    conditions = []
    for each in required:
        try:
            condition = Expression.parse(rename(each.text, names))
        except UsageError:
            continue
        if condition.names <= {*first, *known}:
            conditions.append(condition)
    open_names = [name for name in first if any(name in condition.names for condition in conditions)]
    open_names.sort(
        key=lambda name: min(len(each.names & set(open_names)) for each in conditions if name in each.names)
    )
    # A condition is checked as soon as its last name has a value.
    due: dict[str, list[Expression]] = {name: [] for name in open_names}
    for condition in conditions:
        last = max((open_names.index(name) for name in condition.names if name in due), default=None)
        if last is None:
            if not _holds(condition, known):
                return None
        else:
            due[open_names[last]].append(condition)
    tries = _MOST_TRIES
    sizes: dict[str, int] = {**first}

    def settle(number: int) -> bool:
        nonlocal tries
        if number == len(open_names):
            return True
        name = open_names[number]
        for value in dict.fromkeys((first[name], *_TRIED)):
            tries -= 1
            sizes[name] = value
            if tries > 0 and all(_holds(each, {**known, **sizes}) for each in due[name]) and settle(number + 1):
                return True
        sizes[name] = first[name]
        return False

    return sizes if settle(0) else None


def _holds(condition: Expression, names: Mapping[str, int | float]) -> bool:
    try:
        return bool(condition.value(names))
    except UsageError:
        return False
