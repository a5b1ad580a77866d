"""The values between the stages of a search: a proposal, and a candidate with its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from weft.core.errors import UsageError
from weft.supervise.records import CandidateSource, Evaluation

from .levers.effects import Effect
from .levers.space import Change, Point
from .stopwatch import Timing

LEVERS_PER_CHILD = 2
"""Levers that a child changes; one in a space in which no pair is new."""


@dataclass(frozen=True)
class Spent:
    """The cost of a proposal."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Proposal:
    """A child of a candidate: its text, the two levers it changes, and the expected effects."""

    source: CandidateSource
    parents: tuple[int, ...]
    """The candidate it changes; then the one it took values from."""
    changes: tuple[Change, ...]
    hypothesis: str
    predicted: tuple[Effect, ...] = ()
    point: Point | None = None
    """Its point in the space of levers, if it has one."""
    repairs: int | None = None
    """The failed candidate that it repairs."""
    spent: Spent = Spent()

    def __post_init__(self) -> None:
        levers = {change.lever for change in self.changes}
        if not 1 <= len(levers) == len(self.changes) <= LEVERS_PER_CHILD:
            named = ", ".join(change.lever for change in self.changes)
            raise UsageError(f"a child changes one or two levers, each once, not {len(self.changes)}: {named}")

    def levers_record(self) -> dict[str, Any]:
        """Return plain data: its point and its changes."""
        return {
            "point": self.point.text if self.point is not None else "",
            "changes": [[change.lever, change.before, change.after] for change in self.changes],
        }

    def notes_record(self) -> dict[str, Any]:
        """Return plain data: what is expected of it."""
        return {
            "hypothesis": self.hypothesis,
            "predicted": [[effect.counter, effect.direction, effect.why] for effect in self.predicted],
            "repairs": self.repairs,
            "spent": [self.spent.prompt_tokens, self.spent.completion_tokens, self.spent.seconds],
        }


@dataclass(frozen=True)
class Member:
    """A candidate of a run."""

    id: int
    digest: str
    parents: tuple[int, ...]
    generation: int
    proposer: str
    changes: tuple[Change, ...]
    point: Point | None
    hypothesis: str
    predicted: tuple[Effect, ...]
    repairs: int | None
    spent: Spent
    duplicate_of: int | None
    """An earlier candidate with the same code: this one is not evaluated."""
    evaluation: Evaluation | None
    """None: not evaluated yet, or never."""
    seconds: float
    cached: bool
    timing: Timing | None = None
    """The time on a real GPU, in a search that measures."""

    @property
    def passed(self) -> bool:
        """Return whether it may be a parent: it passed, and does not spill, which the estimate does not include."""
        right = self.evaluation is not None and self.evaluation.passed and self.score is not None
        return right and not (self.parents and self.spills) and not self.refused

    @property
    def refused(self) -> str:
        """Return why its time is not accepted; empty if it is accepted, or if there is none."""
        profile = self.evaluation.profile if self.evaluation is not None else None
        if self.timing is None or profile is None:
            return ""
        if self.timing.wrong:
            return f"wrong on the GPU: {self.timing.wrong}"
        least = profile.lb_warm / profile.kernel.chip.max_ghz / 1e3
        if self.timing.microseconds >= least:
            return ""
        return (
            f"{self.timing.microseconds:.1f} µs is below the lower bound of {least:.1f} µs: a cheat, or a bug in Weft"
        )

    @property
    def spills(self) -> int:
        """Return the spilled bytes per thread."""
        profile = self.evaluation.profile if self.evaluation is not None else None
        return profile.spill_bytes if profile is not None else 0

    @cached_property
    def score(self) -> float | None:
        """Return the score, lower is better: microseconds if it was timed, else the middle of EST_warm in cycles."""
        if self.timing is not None:
            return self.timing.microseconds
        profile = self.evaluation.profile if self.evaluation is not None else None
        return (profile.est_low + profile.est_high) / 2 if profile is not None else None

    def beats(self, parent: "Member", gain: float) -> bool:
        """Return whether it is better by that share: round by round if both were timed, else by score."""
        if self.timing is not None and parent.timing is not None:
            return self.timing.ratio <= 1 - gain
        return self.score is not None and parent.score is not None and self.score <= (1 - gain) * parent.score

    @property
    def limiter(self) -> str:
        """Return the limiter of its estimate."""
        profile = self.evaluation.profile if self.evaluation is not None else None
        return profile.est_limiter if profile is not None else ""

    @property
    def status(self) -> str:
        """Return the status for tables."""
        if self.duplicate_of is not None:
            return "DUPLICATE"
        if self.spills:
            return "SPILLS"
        if self.refused:
            return "REJECTED"
        return self.evaluation.status.value if self.evaluation is not None else "PENDING"


def member_of(row: Any, evaluation: Any) -> Member:
    """Return the member of the store's rows."""
    levers, notes = row.levers, row.notes
    point: str = levers.get("point", "")
    spent = notes.get("spent", (0, 0, 0.0))
    return Member(
        id=row.id,
        digest=row.digest,
        parents=row.parents,
        generation=row.generation,
        proposer=row.proposer,
        changes=tuple(Change(*change) for change in levers.get("changes", ())),
        point=Point.parse(point) if point else None,
        hypothesis=notes.get("hypothesis", ""),
        predicted=tuple(Effect(*effect) for effect in notes.get("predicted", ())),
        repairs=notes.get("repairs"),
        spent=Spent(*spent),
        duplicate_of=notes.get("duplicate_of"),
        evaluation=_evaluation(evaluation),
        seconds=evaluation.seconds if evaluation is not None else 0.0,
        cached=evaluation is not None and evaluation.cached,
        timing=Timing(*notes["timing"]) if "timing" in notes else None,
    )


def _evaluation(row: Any) -> Evaluation | None:
    result: Mapping[str, Any] | None = row.result if row is not None else None
    return Evaluation.from_record(result) if result is not None and {"status", "outcome"} & result.keys() else None
