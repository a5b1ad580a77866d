"""New points from old ones: a child differs from its parent in two levers. The seed decides all choices."""

from collections.abc import Set
from itertools import combinations, product
from random import Random

from weft.core.errors import UsageError

from .space import Point, Space


class Exhausted(UsageError):
    """There is no child that is possible and new."""


def two_levers(space: Space, parent: Point, random: Random, *, avoid: Set[Point] = frozenset()) -> Point:
    """Return a point with two random levers changed, to values that are possible together and not in `avoid`.

    Where there is none, one lever changes: in a space of few levers, pairs do not reach every point.
    """
    for number in (2, 1):
        groups = list(combinations(space.levers, number))
        random.shuffle(groups)
        for levers in groups:
            others = [[value for value in lever.values if value != parent[lever.name]] for lever in levers]
            names = [lever.name for lever in levers]
            children = [parent.moved(dict(zip(names, values, strict=True))) for values in product(*others)]
            possible = [child for child in children if child not in avoid and space.refusal(child) is None]
            if possible:
                return random.choice(possible)
    raise Exhausted(f"every possible point one or two levers from {parent.text} is used already")


def crossover(
    space: Space, parent: Point, other: Point, random: Random, *, avoid: Set[Point] = frozenset()
) -> Point | None:
    """Return `parent` with two levers of `other`; None if they differ in fewer levers, or no child is possible."""
    pairs = list(combinations(space.changes(parent, other), 2))
    children = [parent.moved({change.lever: change.after for change in pair}) for pair in pairs]
    possible = [child for child in children if child not in avoid and space.refusal(child) is None]
    return random.choice(possible) if possible else None
