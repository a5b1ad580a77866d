"""A clock that the test sets, and a lease that must succeed."""

from datetime import UTC, datetime, timedelta

from weft.store.records import Lease
from weft.store.store import Store


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def leased(store: Store, owner: str, **options: float) -> Lease:
    lease = store.lease(owner, **options)  # type: ignore[arg-type]
    assert lease is not None
    return lease
