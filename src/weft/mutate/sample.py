"""A balanced sample of mutants: equally many of each class, and within a class of each operator, where available."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .records import Mutant


@dataclass
class Balance:
    """The mutants chosen so far, counted over all files."""

    classes: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)


def sample(mutants: Sequence[Mutant], count: int, seed: int, balance: Balance | None = None) -> tuple[Mutant, ...]:
    """Return `count` of one file's mutants, or all if there are fewer.

    The choice depends on ids alone: a change elsewhere in the file leaves most of it the same.
    """
    balance = balance or Balance()
    here, lines = Counter[str](), Counter[int]()
    left = {mutant.id: mutant for mutant in mutants}
    drawn = {mark: hashlib.sha256(f"{seed}\0{mark}".encode()).hexdigest() for mark in left}
    chosen: list[Mutant] = []

    def turn(mutant: Mutant) -> tuple[int, int, int, int, int, str]:
        operator = f"operator {mutant.operator}"
        return (
            here[mutant.klass],
            balance.classes[mutant.klass],
            here[operator],
            balance.operators[mutant.operator],
            lines[mutant.line],
            drawn[mutant.id],
        )

    while left and len(chosen) < count:
        mutant = min(left.values(), key=turn)
        del left[mutant.id]
        chosen.append(mutant)
        here.update((mutant.klass, f"operator {mutant.operator}"))
        lines[mutant.line] += 1
        balance.classes[mutant.klass] += 1
        balance.operators[mutant.operator] += 1
    return tuple(chosen)
