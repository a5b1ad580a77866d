"""The rows of the store as frozen values. Times are aware and in UTC; mappings are plain JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

Json = Any
"""None, bool, int, float (finite), str, and lists and dictionaries of them."""


def utc_now() -> datetime:
    """Return the time of the default clock of a store."""
    return datetime.now(UTC)


class State(StrEnum):
    """State of an evaluation."""

    QUEUED = "QUEUED"
    LEASED = "LEASED"
    DONE = "DONE"
    ABANDONED = "ABANDONED"
    """Too many workers were lost during it, or another evaluation replaced it."""


SUPERSEDED = "SUPERSEDED"
"""The status of an ABANDONED evaluation that another one replaced; the status of all others is `LOST`."""


class RunState(StrEnum):
    """State of a run."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"


class Proof(StrEnum):
    """The result of measuring an insight's hypothesis."""

    OPEN = "open"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True)
class RunRow:
    """One search, or another series of evaluations."""

    id: int
    kind: str
    task: str
    chip: str
    seed: int
    settings: Mapping[str, Json]
    state: str
    progress: Mapping[str, Json]
    """What its driver needs to resume."""
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class CandidateRow:
    """One kernel of a run. Its text is the artefact `source_digest`."""

    id: int
    run_id: int
    digest: str
    """Digest of source, launch lines, language and defines: equal candidates are one row."""
    source_digest: str
    language: str
    launch: str
    """Launch lines in a separate file."""
    defines: Mapping[str, str]
    parents: tuple[int, ...]
    levers: Mapping[str, Json]
    """The changes from the parents."""
    generation: int
    proposer: str
    canonical: str | None
    """Hash of its canonical PTX, once it is known."""
    notes: Mapping[str, Json]
    created_at: datetime


@dataclass(frozen=True)
class EvaluationRow:
    """One entry of the queue."""

    id: int
    run_id: int
    candidate_id: int
    key: str
    """Key of the verdict cache."""
    state: State
    priority: int
    request: Mapping[str, Json]
    owner: str | None
    token: int
    """Raised by every lease."""
    attempts: int
    lease_until: datetime | None
    heartbeat_at: datetime | None
    status: str | None
    """None until it is DONE; the reason, if it is ABANDONED."""
    result: Mapping[str, Json] | None
    cached: bool
    """Whether the result is an earlier one with the same key."""
    seconds: float
    created_at: datetime
    finished_at: datetime | None
    needs: str
    """What it runs on: `vgpu` or `gpu`."""


@dataclass(frozen=True)
class Lease:
    """The right to finish an evaluation, until another worker has a higher token."""

    evaluation_id: int
    run_id: int
    candidate_id: int
    key: str
    request: Mapping[str, Json]
    owner: str
    token: int
    until: datetime


@dataclass(frozen=True)
class Result:
    """What the owner of a lease found."""

    lease: Lease
    status: str
    result: Mapping[str, Json]
    seconds: float = 0.0


@dataclass(frozen=True)
class VerdictRow:
    """The verdict of a key, which never changes."""

    key: str
    status: str
    result: Mapping[str, Json]
    created_at: datetime


@dataclass(frozen=True)
class InsightRow:
    """A hypothesis with its measured effect; refuted ones are kept."""

    id: int
    run_id: int
    candidate_id: int
    hypothesis: str
    levers: Mapping[str, Json]
    predicted: Mapping[str, Json]
    before: Mapping[str, Json]
    after: Mapping[str, Json]
    outcome: Proof
    note: str
    created_at: datetime


@dataclass(frozen=True)
class WorkerRow:
    """A process that leases evaluations; its name is the owner of its leases."""

    name: str
    host: str
    pid: int
    kind: str
    """`vgpu` or `gpu`."""
    slots: int
    """Evaluations it runs in parallel."""
    state: str
    """What it did at its last heartbeat."""
    registered_at: datetime
    heartbeat_at: datetime
    stopped_at: datetime | None
    """None while it runs, and also if it died."""


class Happened(StrEnum):
    """Kinds of events."""

    LEASED = "leased"
    FINISHED = "finished"
    FENCED = "fenced"
    GIVEN_BACK = "given_back"
    ABANDONED = "abandoned"
    RECLAIMED = "reclaimed"
    WORKER_STARTED = "worker_started"
    WORKER_STOPPED = "worker_stopped"


@dataclass(frozen=True)
class EventRow:
    """One line of the log."""

    id: int
    at: datetime
    kind: Happened
    owner: str
    run_id: int | None
    evaluation_id: int | None
    token: int | None
    note: str


@dataclass(frozen=True)
class Census:
    """The numbers of the queue at one moment."""

    at: datetime
    depth: Mapping[State, int]
    waiting: Mapping[str, int]
    """QUEUED evaluations by what they need."""
    statuses: Mapping[str, int]
    """DONE or ABANDONED evaluations by status, without superseded ones."""
    cached: int
    """The number of these that the cache answered."""
    recent: Mapping[str, int]
    """Evaluations that workers finished within the window, by owner."""
    window_seconds: float
    oldest_lease_at: datetime | None
    """When the oldest lease was last renewed."""
    overdue: int
    """Leases that expired and were not taken over yet."""
    by_run: Mapping[int, Mapping[State, int]]
