"""The state of a fleet: queue, workers, rates. All of it is read from the store, where the workers write."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from weft.store.records import Census, RunRow, State, WorkerRow
from weft.store.store import Store

SILENT = timedelta(seconds=90)
"""Seconds without a heartbeat after which a worker that did not stop properly counts as dead."""
GONE = timedelta(hours=1)
"""Seconds after which a dead worker is no longer shown."""
WINDOW_SECONDS = 300.0
"""Seconds over which rates are computed."""


@dataclass(frozen=True)
class WorkerStatus:
    """One worker."""

    row: WorkerRow
    life: str
    """`running`, `silent`, `gone` (silent for an hour) or `stopped`."""
    silent_seconds: float
    """Seconds since its last heartbeat."""
    per_minute: float
    """Verdicts."""

    @property
    def recent(self) -> bool:
        """Return whether it had a heartbeat within the hour."""
        return self.silent_seconds <= GONE.total_seconds()


@dataclass(frozen=True)
class FleetStatus:
    """The whole fleet at one moment."""

    store: str
    census: Census
    workers: tuple[WorkerStatus, ...]
    runs: tuple[RunRow, ...]

    @property
    def per_minute(self) -> float:
        """Return the verdicts per minute of all owners of leases, also of those without a row in `workers`."""
        return _rate(sum(self.census.recent.values()), self.census)

    @property
    def oldest_lease_seconds(self) -> float | None:
        """Return the seconds since the oldest lease was renewed."""
        at = self.census.oldest_lease_at
        return None if at is None else (self.census.at - at).total_seconds()

    def run_depth(self, run_id: int) -> Mapping[State, int]:
        """Return the evaluations of a run by state."""
        return self.census.by_run.get(run_id, dict.fromkeys(State, 0))


def fleet_status(store: Store, *, window_seconds: float = WINDOW_SECONDS) -> FleetStatus:
    """Read the state of the fleet from the store."""
    census = store.census(window_seconds=window_seconds)
    workers = tuple(_worker(row, census) for row in store.workers())
    return FleetStatus(store.where, census, workers, store.runs())


def status_record(status: FleetStatus) -> dict[str, object]:
    """Return the state as plain JSON."""
    census, oldest = status.census, status.oldest_lease_seconds
    return {
        "store": status.store,
        "at": census.at.isoformat(),
        "evaluations": {state.value.lower(): count for state, count in census.depth.items()},
        "waiting": dict(census.waiting),
        "statuses": dict(census.statuses),
        "cached": census.cached,
        "per_minute": round(status.per_minute, 3),
        "window_seconds": census.window_seconds,
        "oldest_lease_seconds": None if oldest is None else round(oldest, 3),
        "overdue_leases": census.overdue,
        "workers": [_worker_record(worker) for worker in status.workers],
        "runs": [
            {
                "run": run.id,
                "kind": run.kind,
                "task": run.task,
                "state": run.state,
                **{state.value.lower(): count for state, count in status.run_depth(run.id).items()},
            }
            for run in status.runs
        ],
    }


def _worker(row: WorkerRow, census: Census) -> WorkerStatus:
    silent = census.at - row.heartbeat_at
    if row.stopped_at is not None:
        life = "stopped"
    else:
        life = "gone" if silent > GONE else "silent" if silent > SILENT else "running"
    # The census was read before the workers: a heartbeat may be newer than the census.
    return WorkerStatus(row, life, max(0.0, silent.total_seconds()), _rate(census.recent.get(row.name, 0), census))


def _worker_record(worker: WorkerStatus) -> dict[str, object]:
    row = worker.row
    return {
        "name": row.name,
        "host": row.host,
        "pid": row.pid,
        "kind": row.kind,
        "slots": row.slots,
        "life": worker.life,
        "state": row.state,
        "silent_seconds": round(worker.silent_seconds, 3),
        "per_minute": round(worker.per_minute, 3),
        "registered_at": row.registered_at.isoformat(),
        "stopped_at": _iso(row.stopped_at),
    }


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _rate(count: int, census: Census) -> float:
    return 60 * count / census.window_seconds
