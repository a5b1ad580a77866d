"""One database and its transactions. A row whose write was acknowledged survives the kill of any process."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from .backend import Backend, Bell
from .errors import StoreError
from .postgres_backend import PostgresBackend
from .schema import METADATA, bring_up_to_date, up_to_date
from .sqlite_backend import SqliteBackend

Found = TypeVar("Found")
Step = Callable[[sa.Connection], Found]
_BACKENDS: Mapping[str, Callable[[sa.URL], Backend]] = {"sqlite": SqliteBackend, "postgresql": PostgresBackend}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Database:
    """An open database. Safe to use from several threads; a process that forks opens its own."""

    def __init__(self, backend: Backend, clock: Callable[[], datetime] | None) -> None:
        self.where = backend.where
        self._backend = backend
        self._clock = clock
        self._patience = 0.0  # if the first connection fails, the URL is probably wrong: do not wait for a restart
        self._engine = backend.engine()
        self._reader = backend.reader(self._engine)
        if not self._read(lambda connection: up_to_date(connection, self.where)):
            with self.begin() as connection:
                bring_up_to_date(connection, self.where)
        self._patience = backend.patience_seconds

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    def now(self) -> datetime:
        """Return the time of the store's clock: the given one, or the database's."""
        return self._clock() if self._clock is not None else self._read(self._backend.time)

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Open a transaction that may write; only one exists at a time. On a normal exit it is committed and on the
        disk.
        """
        with self._explained(), self._connected(self._engine) as connection, connection.begin():
            self._backend.alone(connection)
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Open a transaction that reads one snapshot of the store and does not wait for writers."""
        with self._explained(), self._connected(self._reader) as connection, connection.begin():
            yield connection

    def bell(self) -> Bell:
        """Return a bell that rings when something may have been queued from now on. Close it."""
        with self._explained():
            return self._backend.bell(self._engine)

    def create(self, *tables: sa.Table) -> None:
        """Create those of these tables that are missing."""
        with self.begin() as connection:
            METADATA.create_all(connection, tables=tables, checkfirst=True)

    def _write(self, step: Step[Found]) -> Found:
        """Run a step in a separate transaction, and again if the connection is lost.

        A commit without an answer may or may not have happened: the step must give the same result in both cases.
        """
        with self._explained():
            return self._steadily(lambda: _run(self._engine, step))

    def _read(self, step: Step[Found]) -> Found:
        """Run a step that only reads; retry if the connection is lost."""
        with self._explained():
            return self._steadily(lambda: _run(self._reader, step))

    def _time(self, connection: sa.Connection, *, durable: bool = True) -> datetime:
        """Return the store's time. Not durable: the commit of this transaction need not wait for the disk."""
        now = self._backend.time(connection, durable=durable)
        return self._clock() if self._clock is not None else now

    def _connected(self, engine: sa.Engine) -> sa.Connection:
        return self._steadily(engine.connect)

    def _steadily(self, act: Callable[[], Found]) -> Found:
        end, pause = time.monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return act()
            except DBAPIError as error:
                if not self._backend.passing(error) or time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            message = " ".join(str(error.orig).split())
            cure = self._backend.cure(message)
            raise StoreError(f"the store {self.where}: {message}" + (f": {cure}" if cure else "")) from error
        except SQLAlchemyError as error:
            raise StoreError(f"the store {self.where}: {error}") from error


def insert_new(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with the same key exists; return whether it is new."""
    # SQLAlchemy does not count the rows of an INSERT that generates keys.
    made = new_rows(connection, table).values(values).returning(*table.primary_key)
    return connection.execute(made).first() is not None


def new_rows(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that leaves rows with the same keys as they are."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def backend_of(where: str | Path) -> Backend:
    """Return the backend for a path, whose folder is created, or a URL: `postgresql://user@host:port/database`."""
    spelled = str(where)
    if "://" not in spelled:
        path = Path(spelled).expanduser()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"the store {path}: {error}; choose another path with --store or WEFT_STORE") from error
        return SqliteBackend(sa.URL.create("sqlite", database=str(path)))
    shown = re.sub(r"(://[^:/@]*:)[^@]*@", r"\1***@", spelled)
    try:
        url = sa.make_url(re.sub(r"^postgres://", "postgresql://", spelled))
    except (ArgumentError, ValueError) as error:
        raise StoreError(
            f"the store {shown} is neither a path nor a URL such as postgresql://user@host:5432/database"
        ) from error
    backend = _BACKENDS.get(url.get_backend_name())
    if backend is None:
        raise StoreError(
            f"the store {shown}: give a path (SQLite), or a URL such as postgresql://user@host:5432/database"
        )
    return backend(url)


def _run(engine: sa.Engine, step: Step[Found]) -> Found:
    with engine.begin() as connection:
        return step(connection)
