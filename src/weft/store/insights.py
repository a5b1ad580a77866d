"""The insights: the expected and the measured effect of each change. Refuted ones are kept."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from .database import Database, insert_new
from .records import InsightRow, Json, Proof
from .schema import insights


class Insights(Database):
    """The insights of runs."""

    def add_insight(
        self,
        run_id: int,
        candidate_id: int,
        *,
        hypothesis: str,
        levers: Mapping[str, Json],
        predicted: Mapping[str, Json],
        before: Mapping[str, Json],
        after: Mapping[str, Json],
        outcome: str,
        note: str = "",
    ) -> InsightRow:
        """Return the row of this run, candidate and hypothesis: the existing one, or a new one."""
        values = {
            "run_id": run_id,
            "candidate_id": candidate_id,
            "hypothesis": hypothesis,
            "levers": dict(levers),
            "predicted": dict(predicted),
            "before": dict(before),
            "after": dict(after),
            "outcome": Proof(outcome).value,
            "note": note,
        }

        def step(connection: sa.Connection) -> InsightRow:
            insert_new(connection, insights, {**values, "created_at": self._time(connection)})
            same = (
                (insights.c.run_id == run_id)
                & (insights.c.candidate_id == candidate_id)
                & (insights.c.hypothesis == hypothesis)
            )
            return _insight(connection.execute(sa.select(insights).where(same)).one())

        return self._write(step)

    def insights(self, run_id: int | None = None, *, outcome: str | None = None) -> tuple[InsightRow, ...]:
        """Return the insights in order; of one run or all, of one outcome or all."""
        query = sa.select(insights).order_by(insights.c.id)
        if run_id is not None:
            query = query.where(insights.c.run_id == run_id)
        if outcome is not None:
            query = query.where(insights.c.outcome == Proof(outcome).value)
        return self._read(lambda connection: tuple(_insight(row) for row in connection.execute(query)))


def _insight(row: sa.Row[Any]) -> InsightRow:
    return InsightRow(**{**row._mapping, "outcome": Proof(row.outcome)})
