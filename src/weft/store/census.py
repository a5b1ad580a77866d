"""Numbers of the queue, counted from rows, so that no counter can be out of date."""

from datetime import timedelta

import sqlalchemy as sa

from .database import Database
from .records import SUPERSEDED, Census, State
from .schema import evaluations

_ENDED = (State.DONE.value, State.ABANDONED.value)


class Counting(Database):
    """Counts of the queue."""

    def census(self, *, window_seconds: float = 300.0) -> Census:
        """Return all numbers at one moment."""

        def step(connection: sa.Connection) -> Census:
            now, c, number = self._time(connection), evaluations.c, sa.func.count()
            by_run: dict[int, dict[State, int]] = {}
            for run, state, count in connection.execute(
                sa.select(c.run_id, c.state, number).group_by(c.run_id, c.state)
            ):
                by_run.setdefault(run, dict.fromkeys(State, 0))[State(state)] = count
            waiting = sa.select(c.needs, number).where(c.state == State.QUEUED.value).group_by(c.needs)
            # A superseded evaluation may be queued again, and counters computed from this must not fall.
            ended = c.state.in_(_ENDED) & (c.status != SUPERSEDED)
            statuses = sa.select(c.status, number).where(ended).group_by(c.status)
            since = now - timedelta(seconds=window_seconds)
            recent = (
                sa.select(c.owner, number)
                .where(c.finished_at > since, c.state == State.DONE.value, c.cached.is_(False), c.owner.is_not(None))
                .group_by(c.owner)
            )
            leased = c.state == State.LEASED.value
            oldest, overdue = connection.execute(
                sa.select(sa.func.min(c.heartbeat_at), number.filter(c.lease_until <= now)).where(leased)
            ).one()
            return Census(
                at=now,
                depth={state: sum(each[state] for each in by_run.values()) for state in State},
                waiting={needs: count for needs, count in connection.execute(waiting)},
                statuses={status: count for status, count in connection.execute(statuses)},
                cached=connection.execute(sa.select(number).where(c.cached.is_(True))).scalar_one(),
                recent={owner: count for owner, count in connection.execute(recent)},
                window_seconds=window_seconds,
                oldest_lease_at=oldest,
                overdue=overdue,
                by_run=by_run,
            )

        return self._read(step)
