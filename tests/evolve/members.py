"""Artificial candidates for tests of the decisions: only the fields that a decision reads are set."""

from dataclasses import dataclass
from typing import cast

from weft.core.status import Status
from weft.evolve.history import History
from weft.evolve.levers.effects import Effect
from weft.evolve.levers.space import Change, Point
from weft.evolve.records import Member, Spent
from weft.supervise.counted import Profile
from weft.supervise.records import Evaluation

NOTHING = Spent()


@dataclass(frozen=True)
class Estimated:
    """A profile of which only the estimate is known."""

    est_low: float
    est_high: float
    est_limiter: str
    spill_bytes: int


def member(
    number: int,
    score: float | None,
    *,
    parents: tuple[int, ...] = (),
    point: str = "",
    changes: tuple[Change, ...] = (),
    limiter: str = "smem and issue",
    generation: int | None = None,
    duplicate_of: int | None = None,
    predicted: tuple[Effect, ...] = (),
    repairs: int | None = None,
    spent: Spent = NOTHING,
    seconds: float = 0.0,
    spills: int = 0,
) -> Member:
    """Return a member that passed with this score, or failed."""
    if score is None:
        evaluation: Evaluation | None = Evaluation(Status.INCORRECT_NUMERICAL, "gate tight: 3 of 64 elements")
    else:
        profile = cast(Profile, Estimated(score * 0.9, score * 1.1, limiter, spills))
        evaluation = Evaluation(Status.PASSED, profile=profile)
    return Member(
        id=number,
        digest=f"digest {number}",
        parents=parents,
        generation=len(parents[:1]) if generation is None else generation,
        proposer="test",
        changes=changes,
        point=Point.parse(point) if point else None,
        hypothesis=f"hypothesis {number}",
        predicted=predicted,
        repairs=repairs,
        spent=spent,
        duplicate_of=duplicate_of,
        evaluation=None if duplicate_of is not None else evaluation,
        seconds=seconds,
        cached=False,
    )


def history(*members: Member) -> History:
    return History(members)
