"""Freed buffers whose place is not used again yet, in tables that a launch does not enlarge.

Programs measure the memory that a launch leaves behind (`tracemalloc` counts Python's and NumPy's). So rows are numbers
in one array, made once, and equal names are one string.
"""

import sys

import numpy as np

from .buffers import Allocation, PlacedBuffer

_ROWS = 1 << 12


class Quarantine:
    """A queue of places, oldest first."""

    def __init__(self) -> None:
        self._rows = np.zeros((_ROWS, 4), np.int64)
        """A ring: address and size of the buffer, start and end of its place."""
        self._names = [""] * _ROWS
        self._of = [""] * _ROWS
        self._first = self._count = 0
        self.size_bytes = 0
        """Bytes of all places."""

    def __len__(self) -> int:
        return self._count

    def append(self, placed: PlacedBuffer) -> None:
        if self._count == len(self._rows):
            self._enlarge()
        at = (self._first + self._count) % len(self._rows)
        buffer = placed.buffer
        self._rows[at] = buffer.address, buffer.size_bytes, placed.low, placed.high
        self._names[at], self._of[at] = sys.intern(buffer.name), buffer.of
        self._count += 1
        self.size_bytes += placed.high - placed.low

    def pop_oldest(self) -> tuple[int, int]:
        """Remove the oldest; return start and end of its place."""
        low, high = (int(value) for value in self._rows[self._first, 2:])
        self._first = (self._first + 1) % len(self._rows)
        self._count -= 1
        self.size_bytes -= high - low
        return low, high

    def pop_all(self) -> list[tuple[int, int]]:
        """Remove all; return their places."""
        places = [(low, high) for low, high in self._rows[self._order(), 2:].tolist()]
        self._first = self._count = self.size_bytes = 0
        return places

    def owner(self, address: int) -> Allocation | None:
        """Return the buffer freed last that contained `address`."""
        order = self._order()
        behind = address - self._rows[order, 0]
        found = order[(behind >= 0) & (behind < self._rows[order, 1])]
        if not found.size:
            return None
        at = int(found[-1])
        start, size = (int(value) for value in self._rows[at, :2])
        return Allocation(start, size, self._names[at], self._of[at])

    def _order(self) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
        """Return the rows in use, oldest first."""
        return np.arange(self._first, self._first + self._count) % len(self._rows)

    def _enlarge(self) -> None:
        order = self._order()
        self._rows = np.concatenate([self._rows[order], np.zeros_like(self._rows)])
        self._names = [self._names[at] for at in order] + [""] * self._count
        self._of = [self._of[at] for at in order] + [""] * self._count
        self._first = 0
