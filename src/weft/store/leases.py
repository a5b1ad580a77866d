"""Leases of evaluations, fenced by tokens, and the results that their owners write.

A lease is valid until a time. When it expires, any worker may lease the evaluation again with a higher token, and a
later result of the first worker is refused: one evaluation has one result. Leases and heartbeats need not be on the
disk when they are acknowledged (decision 0029); results are.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa

from .backend import JsonText, to_json
from .errors import Fenced, StoreError
from .records import EvaluationRow, Happened, Json, Lease, Result, State
from .schema import evaluations, verdicts
from .verdicts import Verdicts, cache_results

LEASE_SECONDS = 60.0
MOST_LEASES = 50
"""Number of expired leases after which an evaluation counts as the cause: far more than by chance."""
ATTEMPTS = 3
"""Number of lost workers after which an evaluation is given up."""
_GONE = f"{MOST_LEASES} workers stopped responding during it until their leases expired"
_TURN = (evaluations.c.priority.desc(), evaluations.c.id)

Found = TypeVar("Found")


class Leases(Verdicts):
    """The leases of the queue."""

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
        found = self.lease_some(
            owner, 1, seconds=seconds, run_id=run_id, evaluation_id=evaluation_id, needs=needs, skip=skip
        )
        return found[0] if found else None

    def lease_some(
        self,
        owner: str,
        most: int,
        *,
        seconds: float = LEASE_SECONDS,
        run_id: int | None = None,
        evaluation_id: int | None = None,
        needs: str | None = None,
        skip: Collection[int] = (),
    ) -> tuple[Lease, ...]:
        """Lease up to `most` free evaluations in one transaction, in the order of `lease`."""
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

        def step(connection: sa.Connection) -> tuple[Lease, ...]:
            if unanswered:
                earlier = _still_held(connection, unanswered)
                if earlier:
                    return earlier
            now = self._time(connection, durable=False)
            taken: list[Lease] = []
            worn_out = True
            while worn_out and len(taken) < most:  # others take the place of those that are abandoned
                worn_out = False
                for row in _take(connection, now, owner, seconds, most - len(taken), wanted):
                    until = now + timedelta(seconds=seconds)
                    lease = Lease(row.id, row.run_id, row.candidate_id, row.key, row.request, owner, row.token, until)
                    if row.attempts > MOST_LEASES:
                        self._abandon(connection, now, lease, _GONE)
                        worn_out = True
                    else:
                        taken.append(lease)
            ids = [lease.evaluation_id for lease in taken]
            self._log_rows(connection, now, Happened.LEASED, ids, note=sa.literal(""))
            unanswered.extend(taken)
            return tuple(taken)

        return self._write(step)

    def heartbeat(self, lease: Lease, *, seconds: float = LEASE_SECONDS) -> Lease:
        """Extend the lease and return it. Raises Fenced if another worker has the evaluation."""
        return _one(self.heartbeat_all([lease], seconds=seconds))

    def heartbeat_all(self, leases: Sequence[Lease], *, seconds: float = LEASE_SECONDS) -> tuple[Lease | Fenced, ...]:
        """Extend leases in one transaction; return each, or Fenced if another worker has the evaluation."""

        def step(connection: sa.Connection) -> tuple[Lease | Fenced, ...]:
            now = self._time(connection, durable=False)
            until = now + timedelta(seconds=seconds)
            renewed = {"lease_until": until, "heartbeat_at": now}
            change = evaluations.update().where(_held(leases)).values(renewed).returning(evaluations.c.id)
            held = set(connection.execute(change).scalars())
            for lease in leases:
                if lease.evaluation_id not in held:
                    self._log(connection, now, Happened.FENCED, lease.owner, lease=lease)
            return tuple(
                replace(lease, until=until) if lease.evaluation_id in held else _fenced(lease) for lease in leases
            )

        return self._write(step)

    def finish(self, lease: Lease, status: str, result: Mapping[str, Json], *, seconds: float = 0.0) -> EvaluationRow:
        """Write the result of a leased evaluation, in the same transaction also to the cache if allowed. Raises Fenced.

        Writing the same result of the same lease again has no effect.
        """
        return _one(self.finish_all([Result(lease, status, result, seconds)]))

    def finish_all(self, results: Sequence[Result]) -> tuple[EvaluationRow | Fenced, ...]:
        """Write results as `finish` does, in one transaction; return each row, or Fenced if its lease was lost."""
        # A result that is not JSON is refused before anything is written.
        texts = [JsonText(to_json(dict(each.result))) for each in results]

        def step(connection: sa.Connection) -> tuple[EvaluationRow | Fenced, ...]:
            now = self._time(connection)
            rows = _locked(connection, [each.lease.evaluation_id for each in results])
            found: list[EvaluationRow | Fenced] = []
            written: list[dict[str, Any]] = []
            made: list[dict[str, Any]] = []
            for each, text in zip(results, texts, strict=True):
                lease, row, result = each.lease, rows[each.lease.evaluation_id], json.loads(text)
                if _is_held(row, lease):
                    done: dict[str, Any] = {
                        "status": each.status,
                        "seconds": each.seconds,
                        "finished_at": now,
                        "lease_until": None,
                    }
                    rows[row.id] = row = replace(row, state=State.DONE, result=result, **done)
                    written.append({"id": row.id, "state": row.state.value, "result": text, **done})
                    made.append({"id": row.id, "key": row.key, "status": each.status, "result": text})
                elif not _is_written(row, each, result):
                    found.append(_fenced(lease))
                    self._log(connection, now, Happened.FENCED, lease.owner, lease=lease)
                    continue
                found.append(row)
            verdicts_now = cache_results(connection, now, made)
            for values in written:
                values["result"] = None if values["id"] in verdicts_now else values["result"]
            _write_all(connection, written)
            ids = [values["id"] for values in written]
            self._log_rows(connection, now, Happened.FINISHED, ids, note=evaluations.c.status)
            return tuple(found)

        return self._write(step)

    def give_back(self, lease: Lease, reason: str, *, attempts: int = ATTEMPTS) -> EvaluationRow:
        """Queue the evaluation of a lost worker again; ABANDONED if it was leased `attempts` times. Raises Fenced."""

        def step(connection: sa.Connection) -> EvaluationRow:
            row = row_of(connection, lease.evaluation_id)
            if row.token == lease.token and row.state in (State.QUEUED, State.ABANDONED):
                return row  # this lease did it already
            queued = {"state": State.QUEUED.value, "owner": None, "lease_until": None}
            if connection.execute(evaluations.update().where(_held([lease])).values(queued)).rowcount != 1:
                raise _fenced(lease)
            now = self._time(connection)
            self._log(connection, now, Happened.GIVEN_BACK, lease.owner, lease=lease, note=reason)
            if row.attempts >= attempts:
                self._abandon(connection, now, lease, reason)
            else:
                self._backend.ring(connection)
            return row_of(connection, lease.evaluation_id)

        try:
            return self._write(step)
        except Fenced:
            # The step's transaction is rolled back; an error of the log must not hide the raised one.
            with suppress(StoreError):
                self._write(lambda connection: self._tell_fenced(connection, lease))
            raise

    def reclaim(self, owner: str, only: Sequence[Lease] | None = None) -> int:
        """Queue again what a restarted owner had leased, or only these leases of it; return how many.

        It does not wait for the leases to expire and does not count as an attempt.
        """
        mine = (evaluations.c.state == State.LEASED.value) & (evaluations.c.owner == owner)
        if only is not None:
            mine &= _held(only)
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
                self._backend.ring(connection)
                self._log(connection, self._time(connection), Happened.RECLAIMED, owner, note=f"{count} evaluations")
            unanswered.append(count)
            return max(unanswered)

        return self._write(step)

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

    def _tell_fenced(self, connection: sa.Connection, lease: Lease) -> None:
        self._log(connection, self._time(connection), Happened.FENCED, lease.owner, lease=lease)


def row_of(connection: sa.Connection, evaluation_id: int) -> EvaluationRow:
    """Return an evaluation. Raises StoreError."""
    row = connection.execute(all_evaluations().where(evaluations.c.id == evaluation_id)).one_or_none()
    if row is None:
        raise StoreError(f"there is no evaluation {evaluation_id}")
    return to_evaluation(row)


def all_evaluations() -> sa.Select[Any]:
    """Return the query of complete evaluations. A result that became the verdict of its key is stored there alone."""
    c = evaluations.c
    is_verdict = (c.state == State.DONE.value) & c.result.is_(sa.null())
    result = sa.case((is_verdict, verdicts.c.result), else_=c.result).label("result")
    columns = [column for column in c if column is not c.result]
    return sa.select(*columns, result).select_from(evaluations.outerjoin(verdicts, verdicts.c.key == c.key))


def to_evaluation(row: sa.Row[Any]) -> EvaluationRow:
    """Return the record of a row."""
    return EvaluationRow(**{**row._mapping, "state": State(row.state)})


def _take(
    connection: sa.Connection,
    now: datetime,
    owner: str,
    seconds: float,
    most: int,
    wanted: Sequence[sa.ColumnElement[bool]],
) -> list[sa.Row[Any]]:
    """Lease the next evaluations and return them in the order of the queue; rows that another worker takes are skipped.

    Two queries instead of one with OR: each reads `most` rows by the index, however long the queue is.
    """
    overdue = (evaluations.c.state == State.LEASED.value) & (evaluations.c.lease_until <= now)
    free = [
        sa.select(evaluations.c.id, evaluations.c.priority)
        .where(which, *wanted)
        .order_by(*_TURN)
        .limit(most)
        .with_for_update(skip_locked=True)
        .subquery()
        for which in (evaluations.c.state == State.QUEUED.value, overdue)
    ]
    both = sa.union_all(*(sa.select(each) for each in free)).subquery()
    # A CTE that locks rows is evaluated once; a subquery of IN might be evaluated again and take more than `most`.
    turn = sa.select(both.c.id).order_by(both.c.priority.desc(), both.c.id).limit(most).cte("turn")
    taken = {
        "state": State.LEASED.value,
        "owner": owner,
        "token": evaluations.c.token + 1,
        "lease_until": now + timedelta(seconds=seconds),
        "attempts": evaluations.c.attempts + 1,
        "heartbeat_at": now,
    }
    c = evaluations.c
    change = evaluations.update().where(c.id.in_(sa.select(turn.c.id))).values(taken)
    returned = change.returning(c.id, c.run_id, c.candidate_id, c.key, c.request, c.token, c.attempts, c.priority)
    return sorted(connection.execute(returned), key=lambda row: (-row.priority, row.id))


def _locked(connection: sa.Connection, ids: Collection[int]) -> dict[int, EvaluationRow]:
    """Return the evaluations by number, locked in the order of their numbers, so that no two callers deadlock."""
    query = all_evaluations().where(evaluations.c.id.in_(ids)).order_by(evaluations.c.id)
    query = query.with_for_update(of=evaluations)
    rows = {row.id: to_evaluation(row) for row in connection.execute(query)}
    missing = set(ids) - set(rows)
    if missing:
        raise StoreError(f"there is no evaluation {min(missing)}")
    return rows


def _write_all(connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write new values, the same columns of each row. The driver sends all before it waits for an answer."""
    if rows:
        new = {name: sa.bindparam(f"new_{name}", type_=evaluations.c[name].type) for name in rows[0]}
        change = evaluations.update().where(evaluations.c.id == new.pop("id")).values(new)
        connection.execute(change, [{f"new_{name}": value for name, value in row.items()} for row in rows])


def _held(leases: Sequence[Lease]) -> sa.ColumnElement[bool]:
    """Return the condition of the evaluations whose leases these still are.

    The owner counts as well as the token: a server that crashed may have forgotten a lease, and then gives another
    worker the same token.
    """
    c = evaluations.c
    rights = [(lease.evaluation_id, lease.token, lease.owner) for lease in leases]
    return (
        c.id.in_([lease.evaluation_id for lease in leases])
        & sa.tuple_(c.id, c.token, c.owner).in_(rights)
        & (c.state == State.LEASED.value)
    )


def _is_held(row: EvaluationRow, lease: Lease) -> bool:
    """Return whether the row satisfies `_held`."""
    return (row.state, row.owner, row.token) == (State.LEASED, lease.owner, lease.token)


def _is_written(row: EvaluationRow, each: Result, result: Mapping[str, Json]) -> bool:
    """Return whether this lease has written this result already."""
    written = (row.state, row.owner, row.token, row.status, row.result)
    return written == (State.DONE, each.lease.owner, each.lease.token, each.status, result)


def _still_held(connection: sa.Connection, leases: Sequence[Lease]) -> tuple[Lease, ...]:
    """Return those leases of a commit without an answer that took place."""
    query = sa.select(evaluations.c.id, evaluations.c.lease_until).where(_held(leases))
    until = {row.id: row.lease_until for row in connection.execute(query)}
    return tuple(lease for lease in leases if until.get(lease.evaluation_id) == lease.until)


def _fenced(lease: Lease) -> Fenced:
    return Fenced(f"evaluation {lease.evaluation_id} is no longer {lease.owner}'s (token {lease.token})")


def _one(found: Sequence[Found | Fenced]) -> Found:
    (only,) = found
    if isinstance(only, Fenced):
        raise only
    return only
