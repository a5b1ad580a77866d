"""The workers of a fleet, with their last heartbeats."""

from typing import Any

import sqlalchemy as sa

from .database import insert_new
from .errors import StoreError
from .events import Events
from .records import Happened, WorkerRow
from .schema import workers


class Workers(Events):
    """The table of workers."""

    def register_worker(self, name: str, *, host: str, pid: int, kind: str = "vgpu", slots: int = 1) -> WorkerRow:
        """Register a worker that starts, or that restarts under its old name."""

        def step(connection: sa.Connection) -> WorkerRow:
            now = self._time(connection)
            values = {
                "host": host,
                "pid": pid,
                "kind": kind,
                "slots": slots,
                "state": "starting",
                "registered_at": now,
                "heartbeat_at": now,
                "stopped_at": None,
            }
            known = _find(connection, name)
            if known is not None and (known.host, known.pid, known.stopped_at) == (host, pid, None):
                values["registered_at"] = known.registered_at  # the same process registered before
            else:
                self._log(connection, now, Happened.WORKER_STARTED, name, note=f"{kind}, {slots} slots, {host} {pid}")
            if not insert_new(connection, workers, {"name": name, **values}):
                connection.execute(workers.update().where(workers.c.name == name).values(values))
            return _worker(connection, name)

        return self._write(step)

    def worker_heartbeat(self, name: str, state: str = "") -> WorkerRow:
        """Record a heartbeat with the worker's state."""

        def step(connection: sa.Connection) -> WorkerRow:
            values = {"heartbeat_at": self._time(connection), "state": state}
            connection.execute(workers.update().where(workers.c.name == name).values(values))
            return _worker(connection, name)

        return self._write(step)

    def stop_worker(self, name: str) -> WorkerRow:
        """Record that the worker ended normally."""

        def step(connection: sa.Connection) -> WorkerRow:
            now = self._time(connection)
            running = (workers.c.name == name) & workers.c.stopped_at.is_(None)
            values = {"stopped_at": now, "heartbeat_at": now, "state": "stopped"}
            if connection.execute(workers.update().where(running).values(values)).rowcount == 1:
                self._log(connection, now, Happened.WORKER_STOPPED, name)
            return _worker(connection, name)

        return self._write(step)

    def workers(self) -> tuple[WorkerRow, ...]:
        """Return all workers that were ever registered, by name."""
        query = sa.select(workers).order_by(workers.c.name)
        return self._read(lambda connection: tuple(WorkerRow(**row._mapping) for row in connection.execute(query)))


def _find(connection: sa.Connection, name: str) -> WorkerRow | None:
    row: sa.Row[Any] | None = connection.execute(sa.select(workers).where(workers.c.name == name)).one_or_none()
    return WorkerRow(**row._mapping) if row is not None else None


def _worker(connection: sa.Connection, name: str) -> WorkerRow:
    found = _find(connection, name)
    if found is None:
        raise StoreError(f"there is no worker {name}: register it first")
    return found
