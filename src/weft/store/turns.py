"""Whose turn it is in the queue."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from .records import State
from .schema import evaluations

MOST_LEASES = 50
"""Leases of one evaluation that may run out before it counts as what ends its workers: far more than by chance."""


def next_row(connection: sa.Connection, now: datetime, wanted: Sequence[sa.ColumnElement[bool]]) -> sa.Row[Any] | None:
    """The evaluation to lease next, locked; what another worker is just taking is passed over.

    Two questions instead of one with OR: each reads a single row by the index, however long the queue is.
    """
    overdue = (evaluations.c.state == State.LEASED.value) & (evaluations.c.lease_until <= now)
    found = [
        row
        for free in (evaluations.c.state == State.QUEUED.value, overdue)
        if (row := _first(connection, [free, *wanted])) is not None
    ]
    return min(found, key=lambda row: (-row.priority, row.id), default=None)


def _first(connection: sa.Connection, which: Sequence[sa.ColumnElement[bool]]) -> sa.Row[Any] | None:
    query = sa.select(evaluations).where(*which).order_by(evaluations.c.priority.desc(), evaluations.c.id).limit(1)
    return connection.execute(query.with_for_update(skip_locked=True)).one_or_none()
