"""What a run has learnt about its levers so far: which values made kernels better, and which counters matter now."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log, sqrt

from .history import History
from .levers.effects import predicted
from .levers.space import Change
from .records import Member

FAILED = -0.5
"""What a child that fails counts as, in nepers of the score."""
MATTERS = 0.25
"""What an effect on the limiter counts as before anything was measured."""
CURIOUS = 0.2
"""What an untried value counts as."""

LIMITED_BY: Mapping[str, tuple[str, ...]] = {
    "smem": ("shared_wavefronts", "excess_wavefronts", "sts", "lsu", "shuffles"),
    "lsu": ("lsu", "sts", "ldg", "shared_wavefronts"),
    "tags": ("ldg", "global_sectors"),
    "dram": ("global_sectors",),
    "tensor": ("issued", "fp32", "alu", "mufu"),
    "issue": ("issued", "fp32", "alu", "mufu", "shuffles"),
}
"""Unit → counters that keep it busy."""


@dataclass(frozen=True)
class Experience:
    """Mean gain of a value of a lever, in nepers of the score, and how often it was tried."""

    gains: Mapping[tuple[str, str], float]
    tried: Mapping[tuple[str, str], int]

    def worth(self, changes: Iterable[Change], parent: Member) -> float:
        """What a child with these changes promises; for comparing children of one parent."""
        total = 0.0
        for change in changes:
            to, back = (change.lever, change.after), (change.lever, change.before)
            total += self.gains.get(to, 0.0) - self.gains.get(back, 0.0)
            total += CURIOUS / sqrt(1 + self.tried.get(to, 0))
            if not self.tried.get(to):
                total += MATTERS * relevance(change, parent.limiter)
        return total


def experience(history: History) -> Experience:
    """Both levers of a child share what it brought; rare tries count less, by one try of no effect."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    tried: dict[tuple[str, str], int] = defaultdict(int)
    for member in history:
        parent = history.parent(member)
        if parent is None or parent.score is None or (member.evaluation is None and member.duplicate_of is None):
            continue
        gain = FAILED if not member.passed or member.score is None else log(parent.score / member.score)
        if member.duplicate_of is not None:
            gain = 0.0
        for change in member.changes:
            sums[change.lever, change.after] += gain / len(member.changes)
            tried[change.lever, change.after] += 1
    return Experience({value: total / (tried[value] + 1) for value, total in sums.items()}, dict(tried))


def relevance(change: Change, limiter: str) -> int:
    """1 if the change is expected to relieve what limits its parent, -1 if it should make it worse, else 0."""
    counters = {name for unit, names in LIMITED_BY.items() if unit in limiter.split() for name in names}
    falls = any(effect.direction == "falls" for effect in predicted(change) if effect.counter in counters)
    rises = any(effect.direction == "rises" for effect in predicted(change) if effect.counter in counters)
    return int(falls) - int(rises)
