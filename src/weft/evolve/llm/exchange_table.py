"""The table of a run's exchanges with a model: what was paid for is never asked again."""

from sqlalchemy import Column, ForeignKey, Integer, String, Table, Text, UniqueConstraint

from weft.store.schema import METADATA, Utc

exchanges = Table(
    "evolve_exchanges",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("place", String(64), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("question", ForeignKey("artefacts.digest"), nullable=False),
    Column("answer", ForeignKey("artefacts.digest"), nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("milliseconds", Integer, nullable=False),
    Column("refused", Text, nullable=False),
    Column("created_at", Utc, nullable=False),
    UniqueConstraint("run_id", "place", "turn"),
)
