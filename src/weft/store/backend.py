"""What SQLite and PostgreSQL do differently, as one small contract."""

import json
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from .errors import StoreError
from .records import Json


class Backend(Protocol):
    """One kind of database, at one place."""

    where: str
    """As it is shown to people: without a password."""
    patience_seconds: float
    """How long a lost connection is tried again."""

    def engine(self) -> sa.Engine:
        """For transactions that write."""

    def reader(self, engine: sa.Engine) -> sa.Engine:
        """For transactions that see one state of the store, and do not wait for writers."""

    def alone(self, connection: sa.Connection) -> None:
        """Wait until no other transaction that asked for this is under way, and keep the others waiting."""

    def time(self, connection: sa.Connection) -> datetime:
        """The clock that all who use this database share."""

    def passing(self, error: DBAPIError) -> bool:
        """Whether the transaction is certainly rolled back, or its fate unknown, and another try may succeed."""

    def cure(self, message: str) -> str:
        """What to do about an error of the driver; empty if it is not known."""


def to_json(value: Json) -> str:
    """How mappings are written. JSON has no NaN: a store that took one could not be read elsewhere."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise StoreError(f"this cannot be written as JSON: {error}") from error


def cure_of(message: str, cures: dict[str, str]) -> str:
    """The first cure whose sign stands in the message."""
    lowered = message.lower()
    return next((cure for sign, cure in cures.items() if sign in lowered), "")
