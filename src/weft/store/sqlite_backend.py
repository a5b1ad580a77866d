"""A store in one file. Processes of one machine share it; a writer locks it as a whole for a few milliseconds."""

import sqlite3
import time
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from .backend import cure_of, to_json
from .records import utc_now

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


class SqliteBackend:
    """A file, by its URL."""

    patience_seconds = 0.0

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self.where = url.database or str(url)

    def engine(self) -> sa.Engine:
        """Every transaction that writes begins with the lock."""
        engine = sa.create_engine(self._url, json_serializer=to_json)
        sa.event.listen(engine, "connect", _prepare)
        sa.event.listen(engine, "begin", _begin)
        return engine

    def reader(self, engine: sa.Engine) -> sa.Engine:
        """The write-ahead log gives readers a state of their own."""
        return engine.execution_options(**{_READING: True})

    def alone(self, connection: sa.Connection) -> None:
        """It is, from its BEGIN IMMEDIATE on."""

    def time(self, connection: sa.Connection) -> datetime:
        """All users of a file are on one machine, and share its clock."""
        return utc_now()

    def passing(self, error: DBAPIError) -> bool:
        """Waiting has its place in SQLite itself, see BUSY_SECONDS."""
        return False

    def cure(self, message: str) -> str:
        """What to do."""
        return cure_of(message, _CURES)


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
        except sqlite3.OperationalError as error:
            # Two processes make the same store; SQLite does not wait here by itself.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    """Writers queue up at their start: one that upgraded a read lock later could fail in its middle."""
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")
