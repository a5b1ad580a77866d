"""The interface of SQLite and PostgreSQL for what they do differently."""

import json
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from .errors import StoreError
from .records import Json


class Bell(Protocol):
    """Tells an idle worker that something may have been queued since the bell was made or last rang."""

    def wait(self, seconds: float) -> bool:
        """Wait until it rings, at most for a time; return whether it rang."""

    def close(self) -> None:
        """Close its connection."""


class Backend(Protocol):
    """A database of one kind at one location."""

    where: str
    """The location as text, without a password."""
    patience_seconds: float
    """How long a lost connection is retried."""

    def engine(self) -> sa.Engine:
        """Return the engine for transactions that write."""

    def reader(self, engine: sa.Engine) -> sa.Engine:
        """Return an engine for transactions that read one snapshot and do not wait for writers."""

    def alone(self, connection: sa.Connection) -> None:
        """Take an exclusive lock: wait for other transactions that have it, and keep later ones waiting."""

    def time(self, connection: sa.Connection, *, durable: bool = True) -> datetime:
        """Return the time of the clock that all users of this database share.

        Not durable: the transaction may be lost if the server crashes soon after its commit, if that makes it faster.
        One call, because each is a round trip.
        """

    def ring(self, connection: sa.Connection) -> None:
        """Ring the bells of all workers when this transaction is committed."""

    def bell(self, engine: sa.Engine) -> Bell:
        """Return a bell with its own connection."""

    def passing(self, error: DBAPIError) -> bool:
        """Return whether the transaction was rolled back, or its result is unknown, and a retry may succeed."""

    def cure(self, message: str) -> str:
        """Return what to do about an error of the driver; empty if unknown."""


class JsonText(str):
    """JSON text that is written as it is."""


def to_json(value: Json | JsonText) -> str:
    """Return the JSON text of a mapping. NaN is refused, because JSON does not have it."""
    if isinstance(value, JsonText):
        return str(value)
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise StoreError(f"this cannot be written as JSON: {error}") from error


def cure_of(message: str, cures: dict[str, str]) -> str:
    """Return the first cure whose key is in the message."""
    lowered = message.lower()
    return next((cure for sign, cure in cures.items() if sign in lowered), "")
