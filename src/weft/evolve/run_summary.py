"""A run in a few numbers, for tables, JSON and the terminal."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from weft.store.records import InsightRow, RunRow
from weft.store.store import Store

from .elites import elites, kept
from .history import History, read_history
from .records import Member
from .search import KIND
from .settings import Settings


@dataclass(frozen=True)
class RunSummary:
    """The state of one search."""

    run: RunRow
    settings: Settings
    history: History
    insights: tuple[InsightRow, ...]

    @property
    def elites(self) -> tuple[Member, ...]:
        return elites(self.history, self.settings) if self.history.members else ()

    @property
    def kept(self) -> frozenset[int]:
        """Return the candidates that were better than their parents by the required share."""
        return frozenset(member.id for member in kept(self.history, self.settings.gain))

    @property
    def best(self) -> Member | None:
        return self.elites[0] if self.elites else None

    @property
    def winner(self) -> int | None:
        """Return the candidate that passed the whole check; None if none did, or the run has not ended."""
        found = self.run.progress.get("winner")
        return int(found) if found is not None else None

    @property
    def ratio(self) -> float | None:
        """Return the score of the best divided by that of the start."""
        start = self.history.start.score if self.history.members else None
        best = self.best.score if self.best is not None else None
        return best / start if best is not None and start else None

    @property
    def outcomes(self) -> dict[str, int]:
        """Return the number of candidates by status."""
        return dict(Counter(member.status for member in self.history))

    @property
    def proofs(self) -> dict[str, int]:
        """Return how many expectations were confirmed and refuted."""
        return dict(Counter(str(row.outcome) for row in self.insights))


def summary_of(store: Store, run_id: int) -> RunSummary:
    """Return the summary of one search; raise StoreError if there is no such run."""
    run = store.run(run_id)
    return RunSummary(run, Settings.from_record(run.settings), read_history(store, run_id), store.insights(run_id))


def searches(store: Store) -> tuple[RunSummary, ...]:
    """Return all searches of a store, in order."""
    return tuple(summary_of(store, run.id) for run in store.runs() if run.kind == KIND)


def member_record(summary: RunSummary, member: Member) -> dict[str, Any]:
    """Return a candidate as plain data."""
    profile = member.evaluation.profile if member.evaluation is not None else None
    return {
        "id": member.id,
        "digest": member.digest,
        "parents": list(member.parents),
        "generation": member.generation,
        "proposer": member.proposer,
        "changes": [str(change) for change in member.changes],
        "point": member.point.text if member.point is not None else None,
        "hypothesis": member.hypothesis,
        "status": member.status,
        "message": member.evaluation.message if member.evaluation is not None else "",
        "diagnosis": member.evaluation.diagnosis if member.evaluation is not None else "",
        "score_cycles": member.score,
        "est_cycles": [profile.est_low, profile.est_high] if profile is not None else None,
        "lb_warm_cycles": profile.lb_warm if profile is not None else None,
        "limiter": member.limiter,
        "kept": member.id in summary.kept,
        "duplicate_of": member.duplicate_of,
        "repairs": member.repairs,
        "seconds": member.seconds,
        "cached": member.cached,
    }


def summary_record(summary: RunSummary) -> dict[str, Any]:
    """Return a run as plain data, without its candidates."""
    history = summary.history
    best = summary.best
    return {
        "run": summary.run.id,
        "state": summary.run.state,
        "task": summary.settings.task,
        "start": summary.settings.start,
        "chip": summary.settings.chip,
        "shape": summary.settings.score_on.shape,
        "proposer": summary.settings.proposer,
        "seed": summary.settings.seed,
        "why": summary.run.progress.get("why", ""),
        "evaluations": history.evaluations,
        "outcomes": summary.outcomes,
        "insights": summary.proofs,
        "start_cycles": history.start.score if history.members else None,
        "best": best.id if best is not None else None,
        "best_cycles": best.score if best is not None else None,
        "ratio": summary.ratio,
        "elites": [member.id for member in summary.elites],
        "winner": summary.winner,
        "refused": summary.run.progress.get("refused", []),
        "seconds": history.seconds,
        "tokens": history.tokens,
        "money": history.money(summary.settings.prices),
    }
