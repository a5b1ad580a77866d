"""How many evaluations a worker leases at once: one, or several if the recent ones were short.

A worker that holds long evaluations ahead keeps them from idle workers; with short ones the store's round trips would
take longer than the evaluations.
"""

from collections import deque

MOST_AHEAD = 16
"""Most leases at once."""
SHORT_SECONDS = 1.0
"""Mean time of the recent evaluations below which several are leased."""
AHEAD_SECONDS = 2.0
"""As many as fit in this time."""
_RECENT = 8


class Pace:
    """The times of the recent evaluations of a worker."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=_RECENT)

    def add(self, seconds: float) -> None:
        """Record the time of one evaluation."""
        self._seconds.append(seconds)

    @property
    def most(self) -> int:
        """Return how many evaluations to lease."""
        if not self._seconds:
            return 1
        mean = sum(self._seconds) / len(self._seconds)
        if mean >= SHORT_SECONDS:
            return 1
        return MOST_AHEAD if mean * MOST_AHEAD <= AHEAD_SECONDS else int(AHEAD_SECONDS / mean)
