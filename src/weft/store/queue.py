"""The queue of evaluations, leased to one worker at a time and fenced by tokens; and their verdicts.

A lease is valid until a time. When it expires, any worker may lease the evaluation again with a higher token, and a
later result of the first worker is refused: one evaluation has one result.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from weft.core.status import CACHEABLE

from .backend import to_json
from .database import Found, Step, insert_new
from .errors import Fenced, NotCacheable, StoreError
from .events import Events
from .records import SUPERSEDED, EvaluationRow, Happened, Json, Lease, State, VerdictRow
from .schema import evaluations, verdicts

LEASE_SECONDS = 60.0
MOST_LEASES = 50
"""Number of expired leases after which an evaluation counts as the cause: far more than by chance."""
ATTEMPTS = 3
"""Number of lost workers after which an evaluation is given up."""
_GONE = f"{MOST_LEASES} workers stopped responding during it until their leases expired"


class Queue(Events):
    """The queue and the cache of verdicts."""

    def enqueue(
        self,
        run_id: int,
        candidate_id: int,
        key: str,
        *,
        request: Mapping[str, Json] = {},
        priority: int = 0,
        needs: str = "vgpu",
    ) -> EvaluationRow:
        """Return the evaluation of a candidate with a key: the existing one, or a new one.

        If the cache has a verdict for the key, it is DONE at once. A superseded one is queued again.
        """

        def step(connection: sa.Connection) -> EvaluationRow:
            asked = {"run_id": run_id, "candidate_id": candidate_id, "key": key, "request": dict(request)}
            return self._enqueue(connection, {**asked, "priority": priority, "needs": needs})

        return self._write(step)

    def supersede(self, evaluation_id: int, key: str, *, request: Mapping[str, Json] = {}) -> EvaluationRow:
        """Queue a candidate with another key instead of a QUEUED evaluation, which is ABANDONED. Return the new one.

        An evaluation that is leased or has ended is not changed and is returned.
        """

        def step(connection: sa.Connection) -> EvaluationRow:
            now, row = self._time(connection), _row(connection, evaluation_id)
            asked = {"run_id": row.run_id, "candidate_id": row.candidate_id, "key": key, "request": dict(request)}
            waits = (
                (evaluations.c.id == row.id) & (evaluations.c.state == State.QUEUED.value) & (evaluations.c.key != key)
            )
            ended = {"state": State.ABANDONED.value, "status": SUPERSEDED, "finished_at": now}
            if connection.execute(evaluations.update().where(waits).values(ended)).rowcount == 1:
                return self._enqueue(connection, {**asked, "priority": row.priority, "needs": row.needs})
            return _asked(connection, asked) or row

        return self._write(step)

    def _enqueue(self, connection: sa.Connection, asked: Mapping[str, Any]) -> EvaluationRow:
        known, now = _verdict(connection, asked["key"]), self._time(connection)
        state: dict[str, Any] = {"state": State.QUEUED.value, "status": None, "cached": False, "finished_at": None}
        if known is not None:
            state = {
                "state": State.DONE.value,
                "status": known.status,
                "result": dict(known.result),
                "cached": True,
                "finished_at": now,
            }
        new = {"token": 0, "attempts": 0, "seconds": 0.0, "created_at": now}
        insert_new(connection, evaluations, {**asked, **new, **state})
        again = _same(asked) & (evaluations.c.status == SUPERSEDED)
        connection.execute(evaluations.update().where(again).values(state))
        row = _asked(connection, asked)
        assert row is not None
        return row

    def lease(
        self,
        owner: str,
        *,
        seconds: float = LEASE_SECONDS,
        run_id: int | None = None,
        evaluation_id: int | None = None,
        needs: str | None = None,
        skip: Collection[int] = (),
    ) -> Lease | None:
        """Lease the next free evaluation, by priority, then the oldest. Return None if there is none.

        `skip` names evaluations that this owner cannot do, so that they do not block the others.
        """
        wanted = [
            column == value
            for column, value in (
                (evaluations.c.run_id, run_id),
                (evaluations.c.id, evaluation_id),
                (evaluations.c.needs, needs),
            )
            if value is not None
        ]
        if skip:
            wanted.append(evaluations.c.id.not_in(tuple(skip)))
        unanswered: list[Lease] = []

        def step(connection: sa.Connection) -> Lease | None:
            for earlier in unanswered:
                if _is_held(_row(connection, earlier.evaluation_id), earlier):
                    return earlier
            now = self._time(connection)
            while (row := _next_row(connection, now, wanted)) is not None:
                until = now + timedelta(seconds=seconds)
                lease = Lease(row.id, row.run_id, row.candidate_id, row.key, row.request, owner, row.token + 1, until)
                if row.attempts >= MOST_LEASES:
                    self._abandon(connection, now, lease, _GONE)
                    continue
                taken = {
                    "state": State.LEASED.value,
                    "owner": owner,
                    "token": lease.token,
                    "lease_until": until,
                    "attempts": row.attempts + 1,
                    "heartbeat_at": now,
                }
                connection.execute(evaluations.update().where(evaluations.c.id == row.id).values(taken))
                self._log(connection, now, Happened.LEASED, owner, lease=lease)
                unanswered.append(lease)
                return lease
            return None

        return self._write(step)

    def heartbeat(self, lease: Lease, *, seconds: float = LEASE_SECONDS) -> Lease:
        """Extend the lease and return it. Raises Fenced if another worker has the evaluation."""

        def step(connection: sa.Connection) -> Lease:
            now = self._time(connection)
            until = now + timedelta(seconds=seconds)
            if not _change(connection, lease, {"lease_until": until, "heartbeat_at": now}):
                raise _fenced(lease)
            return replace(lease, until=until)

        return self._holding(lease, step)

    def finish(self, lease: Lease, status: str, result: Mapping[str, Json], *, seconds: float = 0.0) -> EvaluationRow:
        """Write the result of a leased evaluation, in the same transaction also to the cache if allowed. Raises Fenced.

        Writing the same result of the same lease again has no effect.
        """

        def step(connection: sa.Connection) -> EvaluationRow:
            now = self._time(connection)
            done = {
                "state": State.DONE.value,
                "status": status,
                "result": dict(result),
                "seconds": seconds,
                "finished_at": now,
                "lease_until": None,
            }
            if not _change(connection, lease, done):
                row = _row(connection, lease.evaluation_id)
                same = (row.status, row.result) == (status, json.loads(to_json(dict(result))))
                if row.state is State.DONE and (row.token, row.owner) == (lease.token, lease.owner) and same:
                    return row
                raise _fenced(lease)
            if status in CACHEABLE:
                self._cache(connection, now, lease.key, status, result)
            self._log(connection, now, Happened.FINISHED, lease.owner, lease=lease, note=status)
            return _row(connection, lease.evaluation_id)

        return self._holding(lease, step)

    def give_back(self, lease: Lease, reason: str, *, attempts: int = ATTEMPTS) -> EvaluationRow:
        """Queue the evaluation of a lost worker again; ABANDONED if it was leased `attempts` times. Raises Fenced."""

        def step(connection: sa.Connection) -> EvaluationRow:
            row = _row(connection, lease.evaluation_id)
            if row.token == lease.token and row.state in (State.QUEUED, State.ABANDONED):
                return row  # this lease did it already
            if not _change(connection, lease, {"state": State.QUEUED.value, "owner": None, "lease_until": None}):
                raise _fenced(lease)
            now = self._time(connection)
            self._log(connection, now, Happened.GIVEN_BACK, lease.owner, lease=lease, note=reason)
            if row.attempts >= attempts:
                self._abandon(connection, now, lease, reason)
            return _row(connection, lease.evaluation_id)

        return self._holding(lease, step)

    def reclaim(self, owner: str) -> int:
        """Queue again what a restarted owner had leased, without waiting for the leases; return how many."""
        mine = (evaluations.c.state == State.LEASED.value) & (evaluations.c.owner == owner)
        # The token is raised now, so that a process of that owner that is still alive is fenced at once.
        freed = {
            "state": State.QUEUED.value,
            "owner": None,
            "lease_until": None,
            "token": evaluations.c.token + 1,
            "attempts": evaluations.c.attempts - 1,
        }
        unanswered = [0]

        def step(connection: sa.Connection) -> int:
            count = connection.execute(evaluations.update().where(mine).values(freed)).rowcount
            if count:
                self._log(connection, self._time(connection), Happened.RECLAIMED, owner, note=f"{count} evaluations")
            unanswered.append(count)
            return max(unanswered)

        return self._write(step)

    def evaluation(self, evaluation_id: int) -> EvaluationRow:
        """Return an evaluation by its number."""
        return self._read(lambda connection: _row(connection, evaluation_id))

    def evaluations(self, run_id: int, *, state: State | None = None) -> tuple[EvaluationRow, ...]:
        """Return the evaluations of a run, in the order of the queue."""
        which = evaluations.c.run_id == run_id
        if state is not None:
            which &= evaluations.c.state == state.value
        query = sa.select(evaluations).where(which).order_by(evaluations.c.id)
        return self._read(lambda connection: tuple(_evaluation(row) for row in connection.execute(query)))

    def cached(self, key: str) -> VerdictRow | None:
        """Return the verdict of a key, or None."""
        return self._read(lambda connection: _verdict(connection, key))

    def cache(self, key: str, status: str, result: Mapping[str, Json]) -> VerdictRow:
        """Store a verdict; the first of a key stays. Raises NotCacheable for a status that is not about the kernel."""

        def step(connection: sa.Connection) -> VerdictRow:
            self._cache(connection, self._time(connection), key, status, result)
            found = _verdict(connection, key)
            assert found is not None
            return found

        return self._write(step)

    def _cache(
        self, connection: sa.Connection, now: datetime, key: str, status: str, result: Mapping[str, Json]
    ) -> None:
        if status not in CACHEABLE:
            raise NotCacheable(f"{status} is not stored as a verdict: it may differ next time")
        insert_new(connection, verdicts, {"key": key, "status": status, "result": dict(result), "created_at": now})

    def _abandon(self, connection: sa.Connection, now: datetime, lease: Lease, reason: str) -> None:
        values = {
            "state": State.ABANDONED.value,
            "status": "LOST",
            "result": {"message": reason},
            "owner": None,
            "lease_until": None,
            "finished_at": now,
        }
        connection.execute(evaluations.update().where(evaluations.c.id == lease.evaluation_id).values(values))
        self._log(connection, now, Happened.ABANDONED, lease.owner, lease=lease, note=reason)

    def _holding(self, lease: Lease, step: Step[Found]) -> Found:
        try:
            return self._write(step)
        except Fenced:
            # The step's transaction is rolled back; an error of the log must not hide the raised one.
            with suppress(StoreError):
                self._write(lambda connection: self._tell_fenced(connection, lease))
            raise

    def _tell_fenced(self, connection: sa.Connection, lease: Lease) -> None:
        self._log(connection, self._time(connection), Happened.FENCED, lease.owner, lease=lease)


def _change(connection: sa.Connection, lease: Lease, values: Mapping[str, Any]) -> bool:
    held = (
        (evaluations.c.id == lease.evaluation_id)
        & (evaluations.c.token == lease.token)
        & (evaluations.c.state == State.LEASED.value)
    )
    return connection.execute(evaluations.update().where(held).values(values)).rowcount == 1


def _same(asked: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(evaluations.c[name] == asked[name] for name in ("run_id", "candidate_id", "key")))


def _asked(connection: sa.Connection, asked: Mapping[str, Any]) -> EvaluationRow | None:
    row = connection.execute(sa.select(evaluations).where(_same(asked))).one_or_none()
    return _evaluation(row) if row is not None else None


def _is_held(row: EvaluationRow, lease: Lease) -> bool:
    held = (row.state, row.owner, row.token, row.lease_until)
    return held == (State.LEASED, lease.owner, lease.token, lease.until)


def _fenced(lease: Lease) -> Fenced:
    return Fenced(f"evaluation {lease.evaluation_id} is no longer {lease.owner}'s (token {lease.token})")


def _row(connection: sa.Connection, evaluation_id: int) -> EvaluationRow:
    row = connection.execute(sa.select(evaluations).where(evaluations.c.id == evaluation_id)).one_or_none()
    if row is None:
        raise StoreError(f"there is no evaluation {evaluation_id}")
    return _evaluation(row)


def _evaluation(row: sa.Row[Any]) -> EvaluationRow:
    return EvaluationRow(**{**row._mapping, "state": State(row.state)})


def _verdict(connection: sa.Connection, key: str) -> VerdictRow | None:
    row = connection.execute(sa.select(verdicts).where(verdicts.c.key == key)).one_or_none()
    return VerdictRow(**row._mapping) if row is not None else None


def _next_row(connection: sa.Connection, now: datetime, wanted: Sequence[sa.ColumnElement[bool]]) -> sa.Row[Any] | None:
    """Return the evaluation to lease next, locked; rows that another worker is taking are skipped.

    Two queries instead of one with OR: each reads a single row by the index, however long the queue is.
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
