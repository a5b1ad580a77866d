"""A store in one file. Processes of one machine share it; a writer locks the file for a few milliseconds."""

import sqlite3
import time
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from .backend import Bell, cure_of, to_json
from .errors import StoreError
from .records import State, utc_now

BUSY_SECONDS = 30
"""How long a writer waits for another one."""
WATCH_SECONDS = 0.02
"""Pause between two reads of the file's version."""
_IS_QUEUED = f"SELECT 1 FROM evaluations WHERE state = '{State.QUEUED.value}' LIMIT 1"
_READING = "weft_reading"
_CURES = {
    "locked": f"another process has been writing for {BUSY_SECONDS} s: stop it, or try again",
    "readonly": "the file is read-only: choose another path with --store or WEFT_STORE",
    "unable to open": "choose a writable path with --store or WEFT_STORE",
    "full": "the disk is full; nothing of this step was written: free some space and run it again",
    "disk i/o": "the disk failed or is full; nothing of this step was written",
    "not a database": "this file is not a store: choose another with --store or WEFT_STORE",
    "malformed": "the file is damaged: restore a copy, or choose another with --store or WEFT_STORE",
}


class SqliteBackend:
    """A file, given by its URL."""

    patience_seconds = 0.0

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self.where = url.database or str(url)

    def engine(self) -> sa.Engine:
        """Return an engine whose writing transactions begin with the lock."""
        engine = sa.create_engine(self._url, json_serializer=to_json)
        sa.event.listen(engine, "connect", _prepare)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def reader(self, engine: sa.Engine) -> sa.Engine:
        """Return an engine for readers; the write-ahead log gives each a snapshot."""
        return engine.execution_options(**{_READING: True})

    def alone(self, connection: sa.Connection) -> None:
        """Do nothing: BEGIN IMMEDIATE has locked the file already."""

    def time(self, connection: sa.Connection, *, durable: bool = True) -> datetime:
        """Return this machine's time: all users of the file are on this machine. Every commit is durable here."""
        return utc_now()

    def ring(self, connection: sa.Connection) -> None:
        """Do nothing: a bell sees every commit."""

    def bell(self, engine: sa.Engine) -> Bell:
        """Return a connection that sees when another one has committed."""
        return _Watcher(engine)

    def passing(self, error: DBAPIError) -> bool:
        """Return False: SQLite itself waits, see BUSY_SECONDS."""
        return False

    def cure(self, message: str) -> str:
        """Return what to do."""
        return cure_of(message, _CURES)


class _Watcher:
    """Reads the file's version, which takes microseconds and no lock; after a change, whether something is queued."""

    def __init__(self, engine: sa.Engine) -> None:
        pooled = engine.raw_connection()
        pooled.detach()  # a pool has few connections
        self._cursor: Any = pooled.cursor()
        self._connection = pooled
        self._seen = self._version()

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        try:
            while (version := self._version()) == self._seen:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                time.sleep(min(left, WATCH_SECONDS))
            self._seen = version
            return self._cursor.execute(_IS_QUEUED).fetchone() is not None
        except sqlite3.Error as error:
            raise StoreError(f"the store's file cannot be watched: {error}") from error

    def close(self) -> None:
        self._connection.close()

    def _version(self) -> int:
        (version,) = self._cursor.execute("PRAGMA data_version").fetchone()
        return int(version)


def _prepare(connection: sqlite3.Connection, record: object) -> None:
    """WAL lets readers and a writer work at the same time. FULL, because with NORMAL a power failure could lose an
    acknowledged commit; an evaluation takes seconds, the sync of its row milliseconds.
    """
    connection.isolation_level = None  # _begin starts transactions, not the driver
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    deadline = time.monotonic() + BUSY_SECONDS
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            # Two processes create the same store; SQLite does not wait here by itself.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction. Writers lock at the start: upgrading a read lock later could fail."""
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
