"""Children without a language model: two levers of an elite take other values, by chance and by what was learnt."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from weft.supervise.records import Source

from .elites import parents
from .history import History
from .learn import experience
from .levers.children import Exhausted, crossover, two_levers
from .levers.effects import predicted_together
from .levers.render import render
from .levers.space import Point, Space
from .records import Member, Proposal
from .settings import Settings

DRAWN = 24
"""Children drawn, of which the most promising is proposed."""
CROSSED = 0.25
"""Share of children that take both values from another elite."""


@dataclass(frozen=True)
class LeverProposer:
    """Of a space of levers; `start` is where the first candidate lies in it."""

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
        # Neighbours of one parent may be used up while another's are not.
        for candidate in (parent, *others):
            found = self._best_drawn(history, candidate, random, frozenset(taken))
            if found is not None:
                return self._proposal(candidate, found)
        return None

    def repair(self, history: History, settings: Settings, failed: Member, place: str) -> Proposal | None:
        """Every point of a family is meant to be right: one that fails is a finding, not a thing to try around."""
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
            source=Source(render(self.space, child)),
            parents=(parent.id,) if other is None else (parent.id, other.id),
            changes=changes,
            hypothesis=f"{what}, {because}, makes it faster",
            predicted=predicted_together(changes),
            point=child,
        )
