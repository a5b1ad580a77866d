"""How a worker works, and what it reports."""

from dataclasses import dataclass

from weft.core.errors import UsageError

LOST_ATTEMPTS = 10
"""Attempts per evaluation: in a fleet, machines die more often than candidates kill them."""


@dataclass(frozen=True)
class Terms:
    """How a worker works."""

    lease_seconds: float = 60.0
    idle_seconds: float | None = None
    """Seconds without work after which it stops, so that a rented machine costs no more. None: never."""
    once: bool = False
    """Stop as soon as nothing is queued."""
    run_id: int | None = None
    """Evaluate only for this run."""
    require_isolation: int = 0
    grace_seconds: float = 20.0
    """Time to finish the running evaluation after a request to stop."""
    needs: str | None = "vgpu"
    """The kind of evaluations it takes; None: any, on a machine with a GPU."""
    longest_wait_seconds: float = 2.0
    """Longest pause between two reads of an empty queue."""
    lost_attempts: int = LOST_ATTEMPTS
    """Number of leases after which a lost evaluation is given up."""
    leave_to_others: bool = True
    """Leave an evaluation that requires more isolation to a worker on another machine; False: raise NotIsolated."""

    def __post_init__(self) -> None:
        if self.lease_seconds < 1:
            raise UsageError("a lease of less than a second expires before its first heartbeat")

    @property
    def heartbeat_seconds(self) -> float:
        return self.lease_seconds / 4


@dataclass(frozen=True)
class Event:
    """An action of a worker."""

    event: str
    """started, leased, finished, fenced, given_back, refused, stopped."""
    worker: str
    run: int | None = None
    evaluation: int | None = None
    candidate: int | None = None
    status: str = ""
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Tally:
    """The totals of a worker."""

    finished: int = 0
    given_back: int = 0
    fenced: int = 0
    refused: int = 0
    why: str = ""
    """Why it stopped."""
