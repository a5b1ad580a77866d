"""The tables, and how an older store becomes one of this version."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

METADATA = MetaData()
"""Shared by every table of the store, those of the journal included."""

VERSION = 1
MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {}
"""Version → what makes the next one of it. New tables need none: they are made where they are missing."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Utc(TypeDecorator[datetime]):
    """An aware time as integer microseconds since 1970: exact, and in order, in every database."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any | None, dialect: Dialect) -> int | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone: give times in UTC")
        return int((value - _EPOCH) // timedelta(microseconds=1))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


schema_version = Table(
    "schema_version",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("version", Integer, nullable=False),
)

runs = Table(
    "runs",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("task", Text, nullable=False),
    Column("chip", String(64), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("progress", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("finished_at", Utc),
)

artefacts = Table(
    "artefacts",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("packed", LargeBinary, nullable=False),
    Column("created_at", Utc, nullable=False),
)

candidates = Table(
    "candidates",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("source_digest", ForeignKey("artefacts.digest"), nullable=False),
    Column("language", String(16), nullable=False),
    Column("launch", Text, nullable=False),
    Column("defines", JSON, nullable=False),
    Column("parents", JSON, nullable=False),
    Column("levers", JSON, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("proposer", String(64), nullable=False),
    Column("canonical", String(64)),
    Column("notes", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    UniqueConstraint("run_id", "digest"),
    Index("candidates_by_canonical", "run_id", "canonical"),
)

evaluations = Table(
    "evaluations",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("candidate_id", ForeignKey("candidates.id"), nullable=False),
    Column("key", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("request", JSON, nullable=False),
    Column("owner", Text),
    Column("token", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("lease_until", Utc),
    Column("heartbeat_at", Utc),
    Column("status", String(32)),
    Column("result", JSON(none_as_null=True)),
    Column("cached", Boolean, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("finished_at", Utc),
    UniqueConstraint("run_id", "candidate_id", "key"),
    Index("evaluations_by_state", "state", "priority", "id"),
)

verdicts = Table(
    "verdicts",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("status", String(32), nullable=False),
    Column("result", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
)

insights = Table(
    "insights",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("candidate_id", ForeignKey("candidates.id"), nullable=False),
    Column("hypothesis", Text, nullable=False),
    Column("levers", JSON, nullable=False),
    Column("predicted", JSON, nullable=False),
    Column("before", JSON, nullable=False),
    Column("after", JSON, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("note", Text, nullable=False),
    Column("created_at", Utc, nullable=False),
    UniqueConstraint("run_id", "candidate_id", "hypothesis"),
)

OWN_TABLES = (schema_version, runs, artefacts, candidates, evaluations, verdicts, insights)
