"""The journal's tables. Money is decimal text: exact, and never summed by the database."""

from sqlalchemy import JSON, BigInteger, Boolean, Column, ForeignKey, Integer, String, Table

from .schema import METADATA, Utc

settings = Table(
    "journal_settings",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", JSON, nullable=False),
)

rates = Table(
    "journal_rates",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("amount", String, nullable=False),
    Column("since", Utc, nullable=False),
)

blocks = Table(
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

entries = Table(
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

uses = Table(
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

machines = Table(
    "journal_machines",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String, nullable=False),
    Column("gpu", String, nullable=False),
    Column("rate", String),
    Column("started", Utc, nullable=False),
    Column("stopped", Utc),
)

go_ons = Table(
    "journal_go_ons",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("block", ForeignKey("journal_blocks.id")),
    Column("at", Utc, nullable=False),
    Column("seconds", Integer, nullable=False),
    Column("money", String, nullable=False),
    Column("why", String, nullable=False),
)

TABLES = (settings, rates, blocks, entries, uses, machines, go_ons)
