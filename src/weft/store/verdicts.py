"""The cache of verdicts: one per key, which never changes."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from weft.core.status import CACHEABLE

from .database import insert_new, new_rows
from .errors import NotCacheable
from .events import Events
from .records import Json, VerdictRow
from .schema import evaluations, verdicts


class Verdicts(Events):
    """The table of verdicts."""

    def cached(self, key: str) -> VerdictRow | None:
        """Return the verdict of a key, or None."""
        return self._read(lambda connection: verdict_of(connection, key))

    def cache(self, key: str, status: str, result: Mapping[str, Json]) -> VerdictRow:
        """Store a verdict; the first of a key stays. Raises NotCacheable for a status that is not about the kernel."""
        if status not in CACHEABLE:
            raise NotCacheable(f"{status} is not stored as a verdict: it may differ next time")

        def step(connection: sa.Connection) -> VerdictRow:
            values = {"key": key, "status": status, "result": dict(result), "created_at": self._time(connection)}
            insert_new(connection, verdicts, values)
            found = verdict_of(connection, key)
            assert found is not None
            return found

        return self._write(step)


def cache_results(connection: sa.Connection, now: datetime, ids: Sequence[int]) -> None:
    """Store the results of these evaluations as verdicts, if their statuses are cacheable; the first of a key stays.

    The database copies them, so that a result is sent once. In the order of the keys: two transactions that store the
    same keys in different orders would wait for each other.
    """
    c = evaluations.c
    rows = sa.select(c.key, c.status, c.result, sa.literal(now, verdicts.c.created_at.type))
    rows = rows.where(c.id.in_(ids), c.status.in_(sorted(CACHEABLE))).order_by(c.key, c.id)
    if ids:
        connection.execute(new_rows(connection, verdicts).from_select(["key", "status", "result", "created_at"], rows))


def verdict_of(connection: sa.Connection, key: str) -> VerdictRow | None:
    """Return the verdict of a key, or None."""
    row = connection.execute(sa.select(verdicts).where(verdicts.c.key == key)).one_or_none()
    return VerdictRow(**row._mapping) if row is not None else None
