"""The queue: evaluations that wait, are leased to one worker at a time, and end with a result."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from .database import insert_new
from .leases import Leases, all_evaluations, row_of, to_evaluation
from .records import SUPERSEDED, EvaluationRow, Json, State
from .schema import evaluations
from .verdicts import verdict_of


class Queue(Leases):
    """The queue of evaluations."""

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
            now, row = self._time(connection), row_of(connection, evaluation_id)
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
        known, now = verdict_of(connection, asked["key"]), self._time(connection)
        state: dict[str, Any] = {"state": State.QUEUED.value, "status": None, "cached": False, "finished_at": None}
        if known is not None:
            state = {
                "state": State.DONE.value,
                "status": known.status,
                "cached": True,
                "finished_at": now,
            }
        new = {"token": 0, "attempts": 0, "seconds": 0.0, "created_at": now}
        changed = insert_new(connection, evaluations, {**asked, **new, **state})
        if not changed:
            again = _same(asked) & (evaluations.c.status == SUPERSEDED)
            changed = connection.execute(evaluations.update().where(again).values(state)).rowcount == 1
        if changed and known is None:
            self._backend.ring(connection)
        row = _asked(connection, asked)
        assert row is not None
        return row

    def evaluation(self, evaluation_id: int) -> EvaluationRow:
        """Return an evaluation by its number."""
        return self._read(lambda connection: row_of(connection, evaluation_id))

    def evaluations(self, run_id: int, *, state: State | None = None) -> tuple[EvaluationRow, ...]:
        """Return the evaluations of a run, in the order of the queue."""
        which = evaluations.c.run_id == run_id
        if state is not None:
            which &= evaluations.c.state == state.value
        query = all_evaluations().where(which).order_by(evaluations.c.id)
        return self._read(lambda connection: tuple(to_evaluation(row) for row in connection.execute(query)))


def _same(asked: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(evaluations.c[name] == asked[name] for name in ("run_id", "candidate_id", "key")))


def _asked(connection: sa.Connection, asked: Mapping[str, Any]) -> EvaluationRow | None:
    row = connection.execute(all_evaluations().where(_same(asked))).one_or_none()
    return to_evaluation(row) if row is not None else None
