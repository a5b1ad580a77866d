"""The buffers that a launch can reach: by an address in its parameters, in a variable, or in such a buffer.

A checker that runs a launch again needs a copy of the memory it started from. A program may hold gigabytes of which a
launch uses a few buffers; only those are copied. An address is any eight bytes that point into a buffer or next to it.
A kernel can compute an address that is stored nowhere: the checker must then notice that it wrote to another buffer.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from .memory import GLOBAL_BASE, GlobalMemory

COPY_ALL_BYTES = 1 << 26
"""Up to this size all buffers are copied, which is as fast as to look for addresses."""
_CHUNK = 1 << 24
"""Bytes that are searched at once."""


def reachable(memory: GlobalMemory, params: bytes, addresses: Iterable[int]) -> frozenset[int] | None:
    """Return the numbers of the buffers that a launch can reach; None if all count, because they are small."""
    extents = memory.extents[: memory.numbers]
    if int(extents[:, 1].sum()) <= COPY_ALL_BYTES:
        return None
    numbers = np.flatnonzero(extents[:, 1])
    numbers = numbers[np.argsort(extents[numbers, 0])]
    starts = extents[numbers, 0]

    def near(words: npt.NDArray[np.uint64]) -> set[int]:
        """Return the buffers that contain an address, and those on both sides of it."""
        offsets = (words - np.uint64(GLOBAL_BASE)).astype(np.int64)
        offsets = np.unique(offsets[(offsets >= 0) & (offsets < memory.used)])
        after = np.searchsorted(starts, offsets, side="right")
        inside = offsets < starts[np.maximum(after - 1, 0)] + extents[numbers[np.maximum(after - 1, 0)], 1]
        sides = np.concatenate([after - 1, np.where(inside, after - 1, after)])
        return set(numbers[sides[(sides >= 0) & (sides < len(numbers))]].tolist())

    padded = np.frombuffer(params + bytes(8), np.uint8)
    every = np.lib.stride_tricks.sliding_window_view(padded, 8)[: len(params)]  # a packed structure may hold addresses
    left = near(np.ascontiguousarray(every).view(np.uint64).reshape(-1))
    left |= near(np.fromiter(addresses, np.uint64))
    found: set[int] = set()
    while left:
        number = left.pop()
        found.add(number)
        start, size = (int(value) for value in extents[number])
        for at in range(start, start + size, _CHUNK):
            left |= near(_addresses(memory, at, min(start + size, at + _CHUNK + 4))) - found
    return frozenset(found)


def _addresses(memory: GlobalMemory, start: int, end: int) -> npt.NDArray[np.uint64]:
    """Return the words at multiples of 4 bytes that may be addresses, by their upper half."""
    halves = memory.arena[start : start + (end - start) // 4 * 4].view(np.uint32)
    low, high = GLOBAL_BASE >> 32, (GLOBAL_BASE + memory.used) >> 32
    upper = 1 + np.flatnonzero((halves[1:] >= low) & (halves[1:] <= high))
    return halves[upper].astype(np.uint64) << np.uint64(32) | halves[upper - 1].astype(np.uint64)
