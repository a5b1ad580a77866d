"""A store on a PostgreSQL server, for workers on several machines.

Only the server's clock counts: a worker whose clock is wrong neither loses its leases nor keeps them. A lost
connection is retried for a minute, which is enough for the restart of a server.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from weft.core.distribution import install_command

from .backend import Bell, cure_of, to_json
from .errors import StoreError

PATIENCE_SECONDS = 60.0
CONNECT_SECONDS = 10
_LOCK = 0x77656674
"""Key of the advisory lock: "weft" in ASCII."""
_SESSION = (
    # An acknowledged commit is on the disk even if the server's default is weaker.
    "SET synchronous_commit = on",
    # A worker that stops or loses its connection during a transaction must not lock rows for ever.
    "SET idle_in_transaction_session_timeout = '30s'",
    "SET lock_timeout = '30s'",
)
_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_TIME_AND_HASTE = f"{_TIME}, set_config('synchronous_commit', 'off', true)"
"""`true`: for this transaction only."""
_REACHING = {
    # A broken connection is detected in half a minute; TCP alone would take a quarter of an hour.
    "connect_timeout": CONNECT_SECONDS, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
    "tcp_user_timeout": 30_000, "application_name": "weft", "client_encoding": "utf8",
}  # fmt: skip
_CHANNEL = "weft_queue"
_PASSING_STATES = frozenset("40001 40P01 53300 55P03 57P01 57P02 57P03".split())
"""Serialisation, deadlock, too many connections, lock not available; shut down, crashed, starting up."""
_CURES = {
    "password authentication failed": "check the user and the password of the URL, or ~/.pgpass",
    "no password supplied": "put the password in ~/.pgpass, PGPASSWORD or the URL",
    "no pg_hba.conf entry": "the server does not accept this user from this machine: see its pg_hba.conf",
    "role": "create the user on the server: createuser NAME",
    "too many clients": "raise max_connections of the server, or start fewer workers",
    "remaining connection slots": "raise max_connections of the server, or start fewer workers",
    "connection refused": "check that the server runs and that host and port of the URL are correct",
    "could not translate host name": "check the host of the URL",
    "failed to resolve host": "check the host of the URL",
    "no such file or directory": "check that the server runs on this machine, or give host and port in the URL",
    "no space left": "the server's disk is full; nothing of this step was written: free some space and run it again",
    "disk full": "the server's disk is full; nothing of this step was written: free some space and run it again",
    "read-only transaction": "the server is read-only, such as a standby: give the URL of the primary server",
    "read-write mode during recovery": "the server is read-only, such as a standby: give the URL of the primary server",
    "permission denied": "the user has no permission: GRANT it CREATE ON SCHEMA public, and rights on the tables",
    "lock timeout": "another process has been writing for 30 s: stop it, or try again",
    "server closed the connection": "the server stopped and did not restart in time: start it and run this again",
    "starting up": "the server is not ready yet: run this again in a moment",
    "timeout expired": "the server does not answer: check host, port and firewall",
}
_REFUSALS = (
    "authentication failed",
    "no password supplied",
    "pg_hba.conf",
    "does not exist",
    "resolve host",
    "translate host",
)


class PostgresBackend:
    """A database on a server, given by its URL."""

    patience_seconds = PATIENCE_SECONDS

    def __init__(self, url: sa.URL) -> None:
        self._url = url.set(drivername="postgresql+psycopg")
        self.where = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)

    def engine(self) -> sa.Engine:
        """Return an engine whose writers lock rows, not the store."""
        given = {name: value for name, value in _REACHING.items() if name not in self._url.query}
        try:
            engine = sa.create_engine(self._url, json_serializer=to_json, connect_args=given, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise StoreError(
                f"the store {self.where}: the driver psycopg is not installed: {install_command('postgres')}"
            ) from error
        sa.event.listen(engine, "connect", _prepare)
        return engine

    def reader(self, engine: sa.Engine) -> sa.Engine:
        """Return an engine with one snapshot per transaction."""
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    def alone(self, connection: sa.Connection) -> None:
        """Take an advisory lock, which ends with the transaction."""
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))

    def time(self, connection: sa.Connection, *, durable: bool = True) -> datetime:
        """Return the server's time now, not that of the transaction's start, which may be older."""
        microseconds = connection.exec_driver_sql(_TIME if durable else _TIME_AND_HASTE).one()[0]
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)

    def ring(self, connection: sa.Connection) -> None:
        """Notify the listening connections; the server does it at the commit."""
        connection.exec_driver_sql(f"NOTIFY {_CHANNEL}")

    def bell(self, engine: sa.Engine) -> Bell:
        """Return a connection that listens."""
        return _Listener(engine)

    def passing(self, error: DBAPIError) -> bool:
        """Return whether the connection was lost, or the server ended the transaction because of a conflict."""
        state = getattr(error.orig, "sqlstate", None)
        if state is not None:
            return state in _PASSING_STATES or state.startswith("08")
        text = str(error.orig).lower()
        if any(sign in text for sign in _REFUSALS):
            return False
        return error.connection_invalidated or type(error.orig).__name__ in ("OperationalError", "ConnectionTimeout")

    def cure(self, message: str) -> str:
        """Return what to do."""
        if "database" in message and "does not exist" in message:
            return f"create it on the server: createdb {self._url.database}"
        return cure_of(message, _CURES)


class _Listener:
    """A connection outside the pool: a pool has few, and a bell is kept for as long as its worker is idle."""

    def __init__(self, engine: sa.Engine) -> None:
        self._error = engine.dialect.loaded_dbapi.Error
        pooled = engine.raw_connection()
        driver: Any = pooled.driver_connection
        pooled.detach()
        self._driver = driver
        with self._explained():
            driver.autocommit = True
            driver.execute(f"LISTEN {_CHANNEL}")

    def wait(self, seconds: float) -> bool:
        with self._explained():
            return sum(1 for _ in self._driver.notifies(timeout=seconds, stop_after=1)) > 0

    def close(self) -> None:
        self._driver.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise StoreError(f"the connection that waits for new evaluations is lost: {error}") from error


def _prepare(connection: Any, record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("; ".join(_SESSION))
        cursor.execute("SHOW server_encoding")
        (encoding,) = cursor.fetchone()
    connection.commit()
    if encoding != "UTF8":
        raise StoreError(f"the database's encoding is {encoding}: create it with createdb -E UTF8 -T template0 NAME")
