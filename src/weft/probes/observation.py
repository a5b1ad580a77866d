"""Observation order (PTX ISA 8.9.2): which strong writes of a place a thread has observed by a strong read there.

A strong read observes the write whose value it returns, and through read-modify-writes those before it: a chain. What
it observes is ordered before everything after the read (8.9.5, causality order, second rule), without a fence on
either side. That holds for the observed writes themselves, not for what their threads did before them.

    CTA 0: ticket = atomicAdd(&count, 1)   1: atomicAdd   …   last: atomicAdd returns grid - 1;  count = 0;
The last one's atomic observed all others, so its plain store is ordered after them.

Every strong write of a place gets the next number. In the rows of `clocks.py` a place has a column: the last number
that is known there. Known are all writes of the chain that ends with that number.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Spot = tuple[int, int]
"""CTA (-1: all) and address, as `clocks.spot` returns them."""


@dataclass(frozen=True)
class StrongAccess:
    """The effect of a strong access of one lane."""

    spot: Spot
    record: int
    lane: int
    reads: bool
    """It returns a value that the kernel uses, and its scope includes the threads whose writes it may see."""
    writes: bool
    modifies: bool
    """A read-modify-write: it continues the chain it reads."""
    counts: bool
    """Other threads can observe it: it is not volatile, and its scope is wide enough."""


class Observation:
    """The chains of the given places while a log is read in order; columns start at `first_column`."""

    def __init__(self, spots: Iterable[Spot], first_column: int) -> None:
        self.columns = {spot: first_column + number for number, spot in enumerate(sorted(set(spots)))}
        self.newest = dict.fromkeys(self.columns.values(), -1)
        """Column → number of the write whose value is there; -1: no write that can be observed."""
        self.starts: list[int] = []
        """Number of a write → number of the first of its chain."""
        self.writes: dict[tuple[int, int], tuple[int, int]] = {}
        """(record, lane) of a strong write → its column and number."""

    def after(self, access: StrongAccess, known: Ints) -> Ints | None:
        """Return what the thread knows after an access, None if nothing is new; before, it knew the row `known`."""
        column = self.columns.get(access.spot)
        if column is None:
            return None
        newest, sees = self.newest[column], int(known[column])
        if access.reads and newest >= 0:
            sees = newest
        if access.writes and not access.counts:
            if sees != newest:  # a thread that reads this does not observe the writes before it
                self.newest[column] = -1
        elif access.writes:
            number = len(self.starts)
            goes_on = newest >= 0 and (access.modifies or sees == newest)
            self.starts.append(self.starts[newest] if goes_on else number)
            self.newest[column] = number
            self.writes[access.record, access.lane] = (column, number)
            if not goes_on or sees == newest:
                sees = number
        if sees == known[column]:
            return None
        row = known.copy()
        row[column] = sees
        return row
