from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from weft.journal.journal import Journal
from weft.store.store import open_store


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def after(self, **length: float) -> datetime:
        self.time += timedelta(**length)
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(tmp_path: Path, clock: Clock) -> Iterator[Journal]:
    with open_store(tmp_path / "weft.db", clock=clock) as store:
        yield Journal(store)
