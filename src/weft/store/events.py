"""The log of the queue. Each event is written in the transaction that it describes; the newest events are kept."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from .database import Database
from .records import EventRow, Happened, Lease
from .schema import evaluations, events

KEPT = 100_000
_BETWEEN_SWEEPS = 1_000
_COLUMNS = ("at", "kind", "owner", "note", "run_id", "evaluation_id", "token")


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
        about = (lease.run_id, lease.evaluation_id, lease.token) if lease is not None else (None, None, None)
        values = dict(zip(_COLUMNS, (now, kind.value, owner, note, *about), strict=True))
        self._sweep(connection, connection.execute(events.insert().values(values).returning(events.c.id)))

    def _log_rows(
        self,
        connection: sa.Connection,
        now: datetime,
        kind: Happened,
        ids: Sequence[int],
        *,
        note: sa.ColumnElement[Any],
    ) -> None:
        """Write an entry for each of these evaluations, with owner and token of its row, by one statement."""
        c = evaluations.c
        rows = sa.select(
            sa.literal(now, events.c.at.type), sa.literal(kind.value), c.owner, note, c.run_id, c.id, c.token
        ).where(c.id.in_(ids))
        made = events.insert().from_select(_COLUMNS, rows.order_by(c.priority.desc(), c.id)).returning(events.c.id)
        if ids:
            self._sweep(connection, connection.execute(made))

    def _sweep(self, connection: sa.Connection, made: sa.Result[*tuple[Any, ...]]) -> None:
        """Delete the oldest entries, once in a while."""
        for number in made.scalars():
            if number % _BETWEEN_SWEEPS == 0:
                connection.execute(events.delete().where(events.c.id <= number - KEPT))


def _event(row: sa.Row[Any]) -> EventRow:
    return EventRow(**{**row._mapping, "kind": Happened(row.kind)})
