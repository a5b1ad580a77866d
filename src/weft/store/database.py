"""One database and its transactions. Whoever was told that a row is written finds it again, whatever is killed next."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from .errors import StoreError
from .schema import METADATA, MIGRATIONS, OWN_TABLES, VERSION, schema_version

BUSY_SECONDS = 30
"""How long a writer waits for another one."""
_READING = "weft_reading"
_CURES = {
    "locked": f"another process has been writing for {BUSY_SECONDS} s: stop it, or try again",
    "readonly": "it cannot be written: choose another place with --store or WEFT_STORE",
    "unable to open": "choose a place that can be written with --store or WEFT_STORE",
    "full": "the disk is full; nothing of this step was written: free some space and run it again",
    "disk i/o": "the disk failed or is full; nothing of this step was written",
    "not a database": "this file is no store: choose another with --store or WEFT_STORE",
    "malformed": "the file is damaged: restore a copy, or choose another with --store or WEFT_STORE",
}


class Database:
    """An open database. Safe to use from several threads; a process that forks opens its own."""

    def __init__(self, url: sa.URL, clock: Callable[[], datetime]) -> None:
        self.where = url.database or str(url)
        self._clock = clock
        dumps = partial(json.dumps, allow_nan=False, ensure_ascii=False, sort_keys=True)
        self._engine = sa.create_engine(url, json_serializer=dumps)
        self._reader = self._engine.execution_options(**{_READING: True})
        sa.event.listen(self._engine, "connect", _prepare)
        sa.event.listen(self._engine, "begin", _begin)
        with self.begin() as connection:
            _bring_up_to_date(connection, self.where)

    def close(self) -> None:
        """Give back its connections."""
        self._engine.dispose()

    def now(self) -> datetime:
        """By the store's clock."""
        return self._clock()

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """A transaction that may write: the only one at its time. Left in order it is committed and on the disk."""
        with self._explained(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """What the store holds now, unmoved by writers and without waiting for them."""
        with self._explained(), self._reader.begin() as connection:
            yield connection

    def create(self, *tables: sa.Table) -> None:
        """Make those of these tables that are missing."""
        with self.begin() as connection:
            METADATA.create_all(connection, tables=tables, checkfirst=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreError(f"the store {self.where}: {_explain(str(error.orig))}") from error
        except SQLAlchemyError as error:
            raise StoreError(f"the store {self.where}: {error}") from error


def insert_new(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with the same key is there already, whoever wrote it; returns whether it is new."""
    dialect = {"sqlite": sqlite, "postgresql": postgresql}[connection.dialect.name]
    return connection.execute(dialect.insert(table).values(values).on_conflict_do_nothing()).rowcount == 1


def parse_url(where: str | Path) -> sa.URL:
    """A path, whose folder is made, or a URL of SQLAlchemy."""
    spelled = str(where)
    if "://" not in spelled:
        path = Path(spelled).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store {path}: {error}; choose another place with --store or WEFT_STORE") from error
        return sa.URL.create("sqlite", database=str(path))
    try:
        url = sa.make_url(spelled)
    except ArgumentError as error:
        raise StoreError(f"the store {spelled!r} is neither a path nor a URL") from error
    if url.get_backend_name() != "sqlite":
        raise StoreError(f"the store {spelled}: only SQLite is known; give a path")
    return url


def _prepare(connection: sqlite3.Connection, record: object) -> None:
    """WAL lets readers and a writer go on together. FULL, because NORMAL would let a commit that was already told to
    somebody vanish with the power; an evaluation takes seconds, the sync of its row milliseconds.
    """
    connection.isolation_level = None  # transactions begin where _begin says so, not where the driver guesses
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    deadline = time.monotonic() + BUSY_SECONDS
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:  # two processes make the same store; SQLite does not wait here by itself
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Writers queue up at their start: one that upgraded a read lock later could fail in its middle."""
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _bring_up_to_date(connection: sa.Connection, where: str) -> None:
    METADATA.create_all(connection, tables=OWN_TABLES, checkfirst=True)
    version = connection.execute(sa.select(schema_version.c.version)).scalar()
    if version is None:
        connection.execute(schema_version.insert().values(id=1, version=VERSION))
        return
    if version > VERSION:
        raise StoreError(f"the store {where} was made by a newer Weft (its version is {version}, ours {VERSION})")
    for step in range(version, VERSION):
        MIGRATIONS[step](connection)
    connection.execute(schema_version.update().values(version=VERSION))


def _explain(message: str) -> str:
    for sign, cure in _CURES.items():
        if sign in message.lower():
            return f"{message}: {cure}"
    return message
