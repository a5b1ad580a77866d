"""The log of a fleet as it grows."""

import time
from collections.abc import Callable, Iterator

from weft.store.records import EventRow
from weft.store.store import Store

POLL_SECONDS = 1.0
OVERLAP = 500
"""A server numbers events before it commits them, so that a lower number may appear later: so many are read again."""


def followed(store: Store, last: int, *, wait: Callable[[float], bool] | None = None) -> Iterator[EventRow]:
    """The newest `last` events, then every new one, until `wait` (default: sleep, for ever) says that it is over."""
    wait = wait or _sleep
    first = store.last_events(last + OVERLAP)
    seen = {event.id for event in first}
    yield from first[len(first) - last :] if last < len(first) else first
    while wait(POLL_SECONDS):
        after = max(seen, default=0) - OVERLAP
        seen = {number for number in seen if number > after}
        while rows := store.events(after, limit=2 * OVERLAP):
            yield from (event for event in rows if event.id not in seen)
            seen |= {event.id for event in rows}
            after = rows[-1].id


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return True
