"""The queue of evaluations: leased to one worker at a time, fenced by tokens; and the verdicts that came out.

A lease is a promise to finish until a time. When it runs out, anybody may lease the evaluation again under a higher
token, and what the first worker sends later is refused: one evaluation has one result.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from .database import Database, insert_new
from .errors import Fenced, NotCacheable, StoreError
from .keys import CACHEABLE
from .records import EvaluationRow, Json, Lease, State, VerdictRow
from .schema import evaluations, verdicts

LEASE_SECONDS = 60.0
ATTEMPTS = 3
"""Workers that may be lost over an evaluation before it is given up."""


class Queue(Database):
    """What is to be judged, and what was."""

    def enqueue(
        self, run_id: int, candidate_id: int, key: str, *, request: Mapping[str, Json] = {}, priority: int = 0
    ) -> EvaluationRow:
        """The evaluation of a candidate under a key: the one that is there already, or a new one.

        Where the cache has a verdict of the key it is DONE at once.
        """
        with self.begin() as connection:
            known, now = _verdict(connection, key), self.now()
            values: dict[str, Any] = {
                "run_id": run_id, "candidate_id": candidate_id, "key": key, "state": State.QUEUED.value,
                "priority": priority, "request": dict(request), "token": 0, "attempts": 0, "cached": False,
                "seconds": 0.0, "created_at": now,
            }  # fmt: skip
            if known is not None:
                values |= {"state": State.DONE.value, "status": known.status, "result": dict(known.result),
                           "cached": True, "finished_at": now}  # fmt: skip
            insert_new(connection, evaluations, values)
            same = (
                (evaluations.c.run_id == run_id)
                & (evaluations.c.candidate_id == candidate_id)
                & (evaluations.c.key == key)
            )
            return _evaluation(connection.execute(sa.select(evaluations).where(same)).one())

    def lease(
        self, owner: str, *, seconds: float = LEASE_SECONDS, run_id: int | None = None, evaluation_id: int | None = None
    ) -> Lease | None:
        """The next evaluation that nobody works on: by priority, then the oldest. None: there is none."""
        now = self.now()
        free = (evaluations.c.state == State.QUEUED.value) | (
            (evaluations.c.state == State.LEASED.value) & (evaluations.c.lease_until <= now)
        )
        if run_id is not None:
            free &= evaluations.c.run_id == run_id
        if evaluation_id is not None:
            free &= evaluations.c.id == evaluation_id
        first = sa.select(evaluations).where(free).order_by(evaluations.c.priority.desc(), evaluations.c.id).limit(1)
        with self.begin() as connection:
            row = connection.execute(first.with_for_update(skip_locked=True)).one_or_none()
            if row is None:
                return None
            until = now + timedelta(seconds=seconds)
            taken = {"state": State.LEASED.value, "owner": owner, "token": row.token + 1, "lease_until": until,
                     "attempts": row.attempts + 1, "heartbeat_at": now}  # fmt: skip
            connection.execute(evaluations.update().where(evaluations.c.id == row.id).values(taken))
            return Lease(row.id, row.run_id, row.candidate_id, row.key, row.request, owner, row.token + 1, until)

    def heartbeat(self, lease: Lease, *, seconds: float = LEASE_SECONDS) -> Lease:
        """The same lease, longer. Raises Fenced if somebody else has it."""
        now = self.now()
        until = now + timedelta(seconds=seconds)
        with self.begin() as connection:
            self._change(connection, lease, {"lease_until": until, "heartbeat_at": now})
        return Lease(
            lease.evaluation_id, lease.run_id, lease.candidate_id, lease.key, lease.request, lease.owner, lease.token,
            until,
        )  # fmt: skip

    def finish(self, lease: Lease, status: str, result: Mapping[str, Json], *, seconds: float = 0.0) -> EvaluationRow:
        """The result of a leased evaluation; in the same transaction the cache learns it, if it may. Raises Fenced."""
        with self.begin() as connection:
            done = {"state": State.DONE.value, "status": status, "result": dict(result), "seconds": seconds,
                    "finished_at": self.now(), "lease_until": None}  # fmt: skip
            self._change(connection, lease, done)
            if status in CACHEABLE:
                self._cache(connection, lease.key, status, result)
            return _row(connection, lease.evaluation_id)

    def give_back(self, lease: Lease, reason: str, *, attempts: int = ATTEMPTS) -> EvaluationRow:
        """After a lost worker: QUEUED again, ABANDONED if it was leased `attempts` times. Raises Fenced."""
        with self.begin() as connection:
            row = _row(connection, lease.evaluation_id)
            values: dict[str, Any] = {"state": State.QUEUED.value, "owner": None, "lease_until": None}
            if row.attempts >= attempts:
                values |= {"state": State.ABANDONED.value, "status": "LOST", "result": {"message": reason},
                           "finished_at": self.now()}  # fmt: skip
            self._change(connection, lease, values)
            return _row(connection, lease.evaluation_id)

    def reclaim(self, owner: str) -> int:
        """Queue again what an owner that was restarted had leased, without waiting for the leases; returns how many."""
        mine = (evaluations.c.state == State.LEASED.value) & (evaluations.c.owner == owner)
        # The token is raised now, so that a process of that owner which lives after all is fenced at once.
        freed = {"state": State.QUEUED.value, "owner": None, "lease_until": None, "token": evaluations.c.token + 1,
                 "attempts": evaluations.c.attempts - 1}  # fmt: skip
        with self.begin() as connection:
            return connection.execute(evaluations.update().where(mine).values(freed)).rowcount

    def evaluation(self, evaluation_id: int) -> EvaluationRow:
        """An evaluation by its number."""
        with self.reading() as connection:
            return _row(connection, evaluation_id)

    def evaluations(self, run_id: int, *, state: State | None = None) -> tuple[EvaluationRow, ...]:
        """Of a run, in the order they were queued."""
        which = evaluations.c.run_id == run_id
        if state is not None:
            which &= evaluations.c.state == state.value
        with self.reading() as connection:
            found = connection.execute(sa.select(evaluations).where(which).order_by(evaluations.c.id))
            return tuple(_evaluation(row) for row in found)

    def cached(self, key: str) -> VerdictRow | None:
        """The verdict of a key."""
        with self.reading() as connection:
            return _verdict(connection, key)

    def cache(self, key: str, status: str, result: Mapping[str, Json]) -> VerdictRow:
        """Keep a verdict; the first of a key stays. Raises NotCacheable for what says nothing of the kernel."""
        with self.begin() as connection:
            self._cache(connection, key, status, result)
            found = _verdict(connection, key)
            assert found is not None
            return found

    def _cache(self, connection: sa.Connection, key: str, status: str, result: Mapping[str, Json]) -> None:
        if status not in CACHEABLE:
            raise NotCacheable(f"{status} is not kept as a verdict: it may be another one next time")
        insert_new(
            connection, verdicts, {"key": key, "status": status, "result": dict(result), "created_at": self.now()}
        )

    def _change(self, connection: sa.Connection, lease: Lease, values: Mapping[str, Any]) -> None:
        held = (
            (evaluations.c.id == lease.evaluation_id)
            & (evaluations.c.token == lease.token)
            & (evaluations.c.state == State.LEASED.value)
        )
        if connection.execute(evaluations.update().where(held).values(values)).rowcount != 1:
            raise Fenced(f"evaluation {lease.evaluation_id} is no longer {lease.owner}'s (token {lease.token})")


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
