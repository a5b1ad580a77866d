"""The log of the queue. Each event is written in the transaction that it describes; the newest events are kept."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from .database import Database
from .records import EventRow, Happened, Lease
from .schema import events

KEPT = 100_000
_BETWEEN_SWEEPS = 1_000


class Events(Database):
    """The log."""

    def events(self, after: int = 0, *, limit: int = 1000) -> tuple[EventRow, ...]:
        """Return the events with a higher number, the oldest first."""
        query = sa.select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        return self._read(lambda connection: tuple(_event(row) for row in connection.execute(query)))

    def last_events(self, count: int) -> tuple[EventRow, ...]:
        """Return the newest events, the oldest of them first."""
        query = sa.select(events).order_by(events.c.id.desc()).limit(count)
        return self._read(lambda connection: tuple(_event(row) for row in connection.execute(query)))[::-1]

    def _log(
        self,
        connection: sa.Connection,
        now: datetime,
        kind: Happened,
        owner: str,
        *,
        lease: Lease | None = None,
        note: str = "",
    ) -> None:
        values: dict[str, Any] = {"at": now, "kind": kind.value, "owner": owner, "note": note}
        if lease is not None:
            values |= {"run_id": lease.run_id, "evaluation_id": lease.evaluation_id, "token": lease.token}
        made = connection.execute(events.insert().values(values)).inserted_primary_key
        assert made is not None
        if made[0] % _BETWEEN_SWEEPS == 0:
            connection.execute(events.delete().where(events.c.id <= made[0] - KEPT))


def _event(row: sa.Row[Any]) -> EventRow:
    return EventRow(**{**row._mapping, "kind": Happened(row.kind)})
