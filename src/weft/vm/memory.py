"""The device's address space: private, never host pointers, every allocation between red zones.

A device address shows its window. Global memory is one growing arena of the host; a device address in its window is
`GLOBAL_BASE + offset`. Shared, local and parameter addresses are small offsets in their own spaces; their windows
exist for generic addressing.

There are many addresses, and host memory is committed only where it is touched. So each buffer is followed by a gap as
large as the buffer (up to 256 KB), in which the usual overruns end. The place of a freed buffer stays unused for a
while, so that a pointer kept from an earlier launch does not reach another buffer.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.core.errors import LaunchError

GLOBAL_BASE = 0x7000_0000_0000
SHARED_BASE = 0x0100_0000_0000
LOCAL_BASE = 0x0200_0000_0000
PARAM_BASE = 0x0300_0000_0000
WINDOW_BYTES = 1 << 32
"""Size of the shared, local and parameter windows in the generic space."""

SHARED_START = 1024
"""First shared address in use; a multiple of 128, so banks are those of offset 0."""
SHARED_GRANULE = 64
"""Shared arrays are at least two of these apart, so that a granule belongs to at most one."""
LOCAL_START = 256
RED_ZONE = 256
LEAST_GAP, MOST_GAP = 1 << 12, 1 << 18
"""Limits of the bytes without an owner behind a buffer of global memory; between them, as many as the buffer has."""
FREED_BYTES = 1 << 24
"""Places of freed buffers are used again when this much of the arena is used."""
FREED_KNOWN = 256
"""How many freed buffers are remembered by name."""
ALIGN = 256
"""Allocations start at multiples of this, so that a granule of this size belongs to at most one."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Allocation:
    """One buffer of global memory."""

    address: int
    size_bytes: int
    name: str = ""


def aligned_bytes(size: int) -> Bytes:
    """Return host memory at a 64-byte boundary, with arbitrary contents."""
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def shown_name(name: str) -> str:
    """Returns a buffer's name as messages show it: `argument 0`, but `x` instead of `argument x`."""
    bare = name.removeprefix("argument ")
    return (name if bare.isdigit() else bare) or "a buffer"


def miss(at: int, start: int, size_bytes: int) -> int:
    """Return by how much an address misses a buffer. Bytes before the start count four times: most overrun the end."""
    return max(4 * (start - at), at - start - size_bytes + 1, 0)


def _top(start: int, size_bytes: int) -> int:
    """Return the end of a buffer's gap: RED_ZONE beyond a power of two, so that equal buffers share no cache sets."""
    gap = min(max(size_bytes, LEAST_GAP), MOST_GAP) + RED_ZONE
    return -(-(start + size_bytes + gap) // ALIGN) * ALIGN


class GlobalMemory:
    """Global memory of one device: bump allocation, gaps between buffers."""

    def __init__(self, capacity_bytes: int = 1 << 26) -> None:
        self.arena = aligned_bytes(capacity_bytes)
        self.used = RED_ZONE
        self.arena[: self.used] = 0xFF
        self.allocations: list[Allocation] = []
        self.freed: deque[Allocation] = deque(maxlen=FREED_KNOWN)
        self.owners = np.zeros(capacity_bytes // ALIGN + 1, np.uint32)
        """Per granule: the number of the allocation there, from 1; 0 for none."""
        self.extents = np.zeros((64, 2), np.int64)
        """Per allocation number: offset in the arena and size."""
        self.written: Bytes | None = None
        """A byte per byte of the arena, once `keep_written` was called: 255 where it was written, 0 where not."""

    def keep_written(self) -> Bytes:
        """Record from now on which bytes are written; existing bytes count as written."""
        if len(self.arena) > WINDOW_BYTES:
            raise LaunchError(f"initcheck takes {WINDOW_BYTES} bytes of global memory; this run has {len(self.arena)}")
        if self.written is None:
            self.written = aligned_bytes(len(self.arena) + 64)  # a word may be read across the end
            self.written[: self.used] = 0xFF
        return self.written

    def allocate(self, size_bytes: int, name: str = "", *, align: int = ALIGN) -> int:
        """Reserve `size_bytes`; return the device address. The contents are arbitrary."""
        align = max(align, ALIGN)
        start = -(-self.used // align) * align
        end = start + size_bytes
        top = _top(start, size_bytes)
        if top > len(self.arena):
            grown = aligned_bytes(max(top, 2 * len(self.arena)))
            grown[: self.used] = self.arena[: self.used]
            self.arena = grown
            owners = np.zeros(len(grown) // ALIGN + 1, np.uint32)
            owners[: len(self.owners)] = self.owners
            self.owners = owners
            if self.written is not None:
                written = aligned_bytes(len(grown) + 64)
                written[: self.used] = self.written[: self.used]
                self.written = written
        self.arena[end : end + RED_ZONE] = 0xFF
        self.used = top
        self.allocations.append(Allocation(GLOBAL_BASE + start, size_bytes, name))
        number = len(self.allocations)
        if number == len(self.extents):
            self.extents = np.concatenate([self.extents, np.zeros_like(self.extents)])
        self.extents[number] = start, size_bytes
        self.owners[start // ALIGN : -(-end // ALIGN)] = number
        if self.written is not None:
            self.written[start:top] = 0xFF
        return GLOBAL_BASE + start

    def mark(self) -> tuple[int, int]:
        """Return the state to which `release` returns."""
        return self.used, len(self.allocations)

    def release(self, mark: tuple[int, int]) -> None:
        """Free everything allocated since `mark`. Its place stays unused until FREED_BYTES are used."""
        for gone in self.allocations[mark[1] :]:
            start = gone.address - GLOBAL_BASE
            self.owners[start // ALIGN : -(-(start + gone.size_bytes) // ALIGN)] = 0
            self.freed.append(gone)
        del self.allocations[mark[1] :]
        if self.used > FREED_BYTES:
            self.rewind()

    def rewind(self) -> None:
        """Continue behind the last live buffer: before a permanent buffer is placed, or when freed places add up."""
        last = self.allocations[-1] if self.allocations else None
        self.used = _top(last.address - GLOBAL_BASE, last.size_bytes) if last else RED_ZONE
        self.freed.clear()  # an access is recognised as one to freed memory only until its place is used again

    def write(self, address: int, data: bytes | Bytes) -> None:
        """Copy host bytes to a device address."""
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
        at = self._offset(address, len(raw))
        self.arena[at : at + len(raw)] = raw

    def read(self, address: int, size_bytes: int) -> Bytes:
        """Copy device bytes to the host."""
        at = self._offset(address, size_bytes)
        return self.arena[at : at + size_bytes].copy()

    def owner(self, address: int) -> Allocation | None:
        """Return the allocation that contains `address`, or None."""
        for allocation in self.allocations:
            if allocation.address <= address < allocation.address + allocation.size_bytes:
                return allocation
        return None

    def freed_owner(self, address: int) -> Allocation | None:
        """Return the buffer of an earlier launch that contained `address`, the latest if there were several."""
        for gone in reversed(self.freed):
            if gone.address <= address < gone.address + gone.size_bytes:
                return gone
        return None

    def nearest(self, address: int) -> Allocation | None:
        """Return the live buffer that an access to `address` most likely meant."""
        return min(self.allocations, key=lambda each: miss(address, each.address, each.size_bytes), default=None)

    def describe(self, address: int) -> str:
        """Describes an address for the user: relative to the nearest allocation if it is a global one."""
        nearest = self.nearest(address)
        if address < GLOBAL_BASE or nearest is None:
            return f"address {address:#x}"
        name = f"{shown_name(nearest.name)} ({nearest.size_bytes} bytes)"
        if address < nearest.address:
            return f"{nearest.address - address} bytes before the start of {name}"
        behind = address - nearest.address - nearest.size_bytes
        if behind >= 0:
            return f"{behind} bytes past the end of {name}"
        return f"offset {address - nearest.address} in {name}"

    def _offset(self, address: int, size_bytes: int) -> int:
        at = address - GLOBAL_BASE
        if at < 0 or at + size_bytes > self.used:
            raise LaunchError(f"device address {address:#x} (+{size_bytes} bytes) is not in global memory")
        return at
