"""The cache of verdicts: one per key, which never changes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from weft.core.status import CACHEABLE

from .database import insert_new, new_rows
from .errors import NotCacheable
from .events import Events
from .records import Json, VerdictRow
from .schema import verdicts


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


def cache_results(connection: sa.Connection, now: datetime, results: Sequence[Mapping[str, Any]]) -> set[int]:
    """Store results (id, key, status, result) of evaluations as verdicts, if their statuses are cacheable; the first of
    a key stays. Return the evaluations whose results became verdicts: they need no copy.

    In the order of the keys: two transactions that store the same keys in different orders would wait for each other.
    """
    first = {row["key"]: row for row in sorted(results, key=lambda row: -row["id"]) if row["status"] in CACHEABLE}
    if not first:
        return set()
    columns = ("key", "status", "result")
    rows = [{name: first[key][name] for name in columns} | {"created_at": now} for key in sorted(first)]
    stored = connection.execute(new_rows(connection, verdicts).returning(verdicts.c.key), rows).scalars()
    return {first[key]["id"] for key in stored}


def verdict_of(connection: sa.Connection, key: str) -> VerdictRow | None:
    """Return the verdict of a key, or None."""
    row = connection.execute(sa.select(verdicts).where(verdicts.c.key == key)).one_or_none()
    return VerdictRow(**row._mapping) if row is not None else None
