"""Buffers of global memory: their names, their places, and which one an address most likely meant."""

from collections.abc import Iterable
from dataclasses import dataclass

RED_ZONE = 256
LEAST_GAP, MOST_GAP = 1 << 12, 1 << 18
"""Limits of the bytes without an owner behind a buffer of global memory; between them, as many as the buffer has."""
ALIGN = 256
"""Allocations start at multiples of this, so that a granule of this size belongs to at most one."""


@dataclass(frozen=True)
class Allocation:
    """One buffer of global memory."""

    address: int
    size_bytes: int
    name: str = ""
    of: str = ""
    """Once it is freed: where it was used ("of an earlier launch") or freed, or nothing."""


@dataclass(frozen=True)
class PlacedBuffer:
    """A buffer and its place: the bytes from `low` to `high`, which are the buffer and its gap."""

    buffer: Allocation
    low: int
    high: int
    made: int
    """How many allocations were made before it."""


def shown_name(name: str) -> str:
    """Returns a buffer's name as messages show it: `argument 0`, but `x` instead of `argument x`."""
    bare = name.removeprefix("argument ")
    return (name if bare.isdigit() else bare) or "a buffer"


def miss(at: int, start: int, size_bytes: int) -> int:
    """Return by how much an address misses a buffer. Bytes before the start count four times: most overrun the end."""
    return max(4 * (start - at), at - start - size_bytes + 1, 0)


def end_of_gap(start: int, size_bytes: int) -> int:
    """Return the end of a buffer's gap: RED_ZONE beyond a power of two, so that equal buffers share no cache sets."""
    gap = min(max(size_bytes, LEAST_GAP), MOST_GAP) + RED_ZONE
    return -(-(start + size_bytes + gap) // ALIGN) * ALIGN


def merged(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places in order, those next to each other as one."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(places):
        if joined and joined[-1][1] == low:
            low = joined.pop()[0]
        joined.append((low, high))
    return joined
