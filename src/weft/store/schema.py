"""The tables. Each change is a new version, with a step in MIGRATIONS that upgrades an older store."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
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

from .errors import StoreError

METADATA = MetaData()
"""Metadata of all tables of the store and the journal."""

VERSION = 2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Utc(TypeDecorator[datetime]):
    """An aware time as integer microseconds since 1970: exact and sortable in every database."""

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


_Number = BigInteger().with_variant(Integer, "sqlite")
"""Row number of tables that grow by millions of rows: 31 bits would last for months only. SQLite has 64 bits."""

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
    Column("id", _Number, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("source_digest", ForeignKey("artefacts.digest"), nullable=False),
    Column("language", String(16), nullable=False),
    Column("launch", Text, nullable=False),
    Column("defines", JSON, nullable=False),
    Column("parents", JSON, nullable=False),
    Column("levers", JSON, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("proposer", Text, nullable=False),
    Column("canonical", String(64)),
    Column("notes", JSON, nullable=False),
    Column("created_at", Utc, nullable=False),
    UniqueConstraint("run_id", "digest"),
    Index("candidates_by_canonical", "run_id", "canonical"),
)

evaluations = Table(
    "evaluations",
    METADATA,
    Column("id", _Number, primary_key=True),
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
    Column("needs", String(16), nullable=False, server_default="vgpu"),
    UniqueConstraint("run_id", "candidate_id", "key"),
)
# In the order of the queue, so that a lease reads one row, however long the queue is.
evaluations_by_turn = Index("evaluations_by_turn", evaluations.c.state, evaluations.c.priority.desc(), evaluations.c.id)
evaluations_by_finish = Index("evaluations_by_finish", evaluations.c.finished_at)

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
    Column("id", _Number, primary_key=True),
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

workers = Table(
    "workers",
    METADATA,
    Column("name", String(128), primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("slots", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("registered_at", Utc, nullable=False),
    Column("heartbeat_at", Utc, nullable=False),
    Column("stopped_at", Utc),
)

events = Table(
    "events",
    METADATA,
    Column("id", _Number, primary_key=True),
    Column("at", Utc, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("owner", Text, nullable=False),
    Column("run_id", BigInteger),
    Column("evaluation_id", BigInteger),
    Column("token", Integer),
    Column("note", Text, nullable=False),
)

OWN_TABLES = (schema_version, runs, artefacts, candidates, evaluations, verdicts, insights, workers, events)

journal_settings = Table(
    "journal_settings",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", JSON, nullable=False),
)

journal_rates = Table(
    "journal_rates",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("amount", String, nullable=False),
    Column("since", Utc, nullable=False),
)

journal_blocks = Table(
    "journal_blocks",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("title", String, nullable=False),
    Column("started", Utc, nullable=False),
    Column("stopped", Utc),
    Column("plan", JSON, nullable=False),
    Column("clocked", Boolean, nullable=False),
    Column("engineer", Integer),
    Column("booked_sum", String),
)

journal_entries = Table(
    "journal_entries",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("at", Utc, nullable=False),
    Column("kind", String, nullable=False),
    Column("block", ForeignKey("journal_blocks.id")),
    Column("texts", JSON, nullable=False),
    Column("shapes", JSON, nullable=False),
    Column("run", JSON(none_as_null=True)),
    Column("spent", Integer),
    Column("amended", Utc),
)

journal_uses = Table(
    "journal_uses",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("block", ForeignKey("journal_blocks.id")),
    Column("entry", ForeignKey("journal_entries.id")),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("quantity", BigInteger, nullable=False),
    Column("booked", String),
)

journal_machines = Table(
    "journal_machines",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("gpu", String, nullable=False),
    Column("rate", String),
    Column("started", Utc, nullable=False),
    Column("stopped", Utc),
)

journal_go_ons = Table(
    "journal_go_ons",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("block", ForeignKey("journal_blocks.id")),
    Column("at", Utc, nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("money", String, nullable=False),
    Column("why", String, nullable=False),
)

JOURNAL_TABLES = (
    journal_settings,
    journal_rates,
    journal_blocks,
    journal_entries,
    journal_uses,
    journal_machines,
    journal_go_ons,
)
"""Created with the first journal entry. Money is decimal text: exact, and never summed by the database."""


def _resources_and_order(connection: sa.Connection) -> None:
    """Upgrade 1 → 2: what an evaluation runs on; indices in the order of the queue and of time. Adds no tables."""
    connection.exec_driver_sql("ALTER TABLE evaluations ADD COLUMN needs VARCHAR(16) DEFAULT 'vgpu' NOT NULL")
    connection.exec_driver_sql("DROP INDEX evaluations_by_state")
    evaluations_by_turn.create(connection)
    evaluations_by_finish.create(connection)


MIGRATIONS: Mapping[int, Callable[[sa.Connection], None]] = {1: _resources_and_order}
"""Version → the step that upgrades it to the next version."""


def up_to_date(connection: sa.Connection, where: str) -> bool:
    """Return whether the tables have this version. Raises StoreError if the store is of a newer version of Weft."""
    version = _version(connection)
    if version is not None and version > VERSION:
        raise StoreError(
            f"the store {where} was written by a newer version of Weft (its schema is {version}, this is {VERSION}): "
            "update Weft, or choose another store with --store or WEFT_STORE"
        )
    return version == VERSION


def bring_up_to_date(connection: sa.Connection, where: str) -> None:
    """Create missing tables and upgrade old ones. The caller's transaction keeps all others waiting."""
    if up_to_date(connection, where):
        return  # another process did it already
    version = _version(connection)
    METADATA.create_all(connection, tables=OWN_TABLES, checkfirst=True)
    if version is None:
        connection.execute(schema_version.insert().values(id=1, version=VERSION))
        return
    for step in range(version, VERSION):
        MIGRATIONS[step](connection)
    connection.execute(schema_version.update().values(version=VERSION))


def _version(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(schema_version.name):
        return None
    return connection.execute(sa.select(schema_version.c.version)).scalar()
