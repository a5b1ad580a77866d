"""Children without a language model: two levers of an elite get other values, at random and by what was learnt."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from random import Random

from weft.supervise.records import CandidateSource

from .elites import parents
from .history import History
from .levers.children import Exhausted, crossover, two_levers
from .levers.effects import predicted, predicted_together
from .levers.render import render
from .levers.space import Change, Point, Space
from .records import Member, Proposal
from .settings import Settings

DRAWN = 24
"""Number of random children, of which the most promising is proposed."""
CROSSED = 0.25
"""Share of children that get both values from another elite."""
FAILED = -0.5
"""Gain that is assumed for a child that fails, in nepers of the score."""
MATTERS = 0.25
"""Gain that is assumed for an effect on the limiter before anything was measured."""
CURIOUS = 0.2
"""Gain that is assumed for a lever's value that was never used."""

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
    """What a run has learnt: mean gain of a lever's value, in nepers of the score, and how often it was used."""

    gains: Mapping[tuple[str, str], float]
    tried: Mapping[tuple[str, str], int]

    def worth(self, changes: Iterable[Change], parent: Member) -> float:
        """Return the expected value of a child with these changes, to compare children of one parent."""
        total = 0.0
        for change in changes:
            to, back = (change.lever, change.after), (change.lever, change.before)
            total += self.gains.get(to, 0.0) - self.gains.get(back, 0.0)
            total += CURIOUS / sqrt(1 + self.tried.get(to, 0))
            if not self.tried.get(to):
                total += MATTERS * relevance(change, parent.limiter)
        return total


@dataclass(frozen=True)
class LeverProposer:
    """Proposes points of a space of levers; `start` is the point of the first candidate."""

    space: Space
    start: Point
    name: str = "levers"
    gave_up: str = ""

    def propose(
        self, history: History, settings: Settings, place: str, siblings: Sequence[Proposal]
    ) -> Proposal | None:
        random = Random(f"{settings.seed}/{place}")
        pool = parents(history, settings)
        if not pool:
            return None
        taken = {member.point for member in history if member.point is not None}
        taken |= {sibling.point for sibling in siblings if sibling.point is not None} | {self.start}
        (parent,) = random.choices([member for member, _ in pool], weights=[weight for _, weight in pool])
        others = [member for member, _ in pool if member is not parent]
        if others and random.random() < CROSSED:
            other = random.choice(others)
            child = crossover(self.space, self._point(parent), self._point(other), random, avoid=taken)
            if child is not None:
                return self._proposal(parent, child, other)
        # All neighbours of one parent may be used while another parent has free ones.
        for candidate in (parent, *others):
            found = self._best_drawn(history, candidate, random, frozenset(taken))
            if found is not None:
                return self._proposal(candidate, found)
        return None

    def repair(self, history: History, settings: Settings, failed: Member, place: str) -> Proposal | None:
        """Return None: every point of a family should be correct, so a failure is a bug and is not repaired."""
        return None

    def _best_drawn(self, history: History, parent: Member, random: Random, taken: frozenset[Point]) -> Point | None:
        known, at = experience(history), self._point(parent)
        drawn: list[Point] = []
        for _ in range(DRAWN):
            try:
                drawn.append(two_levers(self.space, at, random, avoid=taken))
            except Exhausted:
                break
        if not drawn:
            return None
        return max(drawn, key=lambda child: known.worth(self.space.changes(at, child), parent))

    def _point(self, member: Member) -> Point:
        return member.point if member.point is not None else self.start

    def _proposal(self, parent: Member, child: Point, other: Member | None = None) -> Proposal:
        changes = self.space.changes(self._point(parent), child)
        what = " and ".join(map(str, changes))
        because = f"as in candidate {other.id}" if other is not None else f"against {parent.limiter}"
        return Proposal(
            source=CandidateSource(render(self.space, child)),
            parents=(parent.id,) if other is None else (parent.id, other.id),
            changes=changes,
            hypothesis=f"{what}, {because}, makes it faster",
            predicted=predicted_together(changes),
            point=child,
        )


def experience(history: History) -> Experience:
    """Return the experience. Both levers of a child share its gain; one extra trial of no effect damps rare values."""
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
    """Return 1 if the change should relieve the limiter of its parent, -1 if it should make it worse, else 0."""
    counters = {name for unit, names in LIMITED_BY.items() if unit in limiter.split() for name in names}
    falls = any(effect.direction == "falls" for effect in predicted(change) if effect.counter in counters)
    rises = any(effect.direction == "rises" for effect in predicted(change) if effect.counter in counters)
    return int(falls) - int(rises)
