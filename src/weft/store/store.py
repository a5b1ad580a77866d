"""The store: one database of runs, candidates, evaluations, verdicts, insights and artefacts.

with open_store() as store:
    run = store.start_run("evolve", task="sdpa", chip="l4", seed=1)
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from weft.core import knobs

from .candidates import Candidates
from .census import Counting
from .database import backend_of
from .insights import Insights
from .queue import Queue
from .workers import Workers


class Store(Candidates, Queue, Insights, Workers, Counting):
    """All data that must outlive the process that produced it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_store() -> str:
    """Return WEFT_STORE, or `weft/weft.db` in the user's data folder."""
    return knobs.store()


def open_store(where: str | Path | None = None, *, clock: Callable[[], datetime] | None = None) -> Store:
    """Open a store by its path or URL; create it if there is none. Raises StoreError.

    Times are the database server's, or this machine's for a file, unless a clock is given.
    """
    return Store(backend_of(where if where is not None else default_store()), clock)
