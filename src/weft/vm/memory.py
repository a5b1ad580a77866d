"""The device's address space: private, never host pointers, every allocation between red zones.

A device address says which window it lies in. Global memory is one growing arena of the host; a device address
in its window is `GLOBAL_BASE + offset`. Shared, local and parameter addresses are small offsets in their own
spaces; their windows exist for generic addressing.
"""

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
"""First shared address handed out; a multiple of 128, so banks are those of offset 0."""
SHARED_GRANULE = 64
"""Shared arrays are at least two of these apart, so that a granule belongs to one at most."""
LOCAL_START = 256
RED_ZONE = 256
ALIGN = 256
"""Allocations start at multiples of this, so that a granule of as many bytes belongs to one at most."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Allocation:
    """One buffer of global memory."""

    address: int
    size_bytes: int
    name: str = ""


def aligned_bytes(size: int) -> Bytes:
    """Host memory at a 64-byte boundary, contents arbitrary."""
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


class GlobalMemory:
    """Global memory of one device: bump allocation, red zones of 0xFF between buffers."""

    def __init__(self, capacity_bytes: int = 1 << 26) -> None:
        self.arena = aligned_bytes(capacity_bytes)
        self.used = RED_ZONE
        self.arena[: self.used] = 0xFF
        self.allocations: list[Allocation] = []
        self.owners = np.zeros(capacity_bytes // ALIGN + 1, np.uint32)
        """Per granule: the number of the allocation there, from 1; 0 for none."""
        self.extents = np.zeros((64, 2), np.int64)
        """Per allocation number: offset in the arena and size."""

    def allocate(self, size_bytes: int, name: str = "", *, align: int = ALIGN) -> int:
        """Reserve `size_bytes`; returns the device address. Contents are whatever the arena held."""
        align = max(align, ALIGN)
        start = -(-self.used // align) * align
        end = start + size_bytes
        top = -(-(end + RED_ZONE) // ALIGN) * ALIGN
        if top > len(self.arena):
            grown = aligned_bytes(max(top, 2 * len(self.arena)))
            grown[: self.used] = self.arena[: self.used]
            self.arena = grown
            owners = np.zeros(len(grown) // ALIGN + 1, np.uint32)
            owners[: len(self.owners)] = self.owners
            self.owners = owners
        self.arena[self.used : start] = 0xFF
        self.arena[end:top] = 0xFF
        self.used = top
        self.allocations.append(Allocation(GLOBAL_BASE + start, size_bytes, name))
        number = len(self.allocations)
        if number == len(self.extents):
            self.extents = np.concatenate([self.extents, np.zeros_like(self.extents)])
        self.extents[number] = start, size_bytes
        self.owners[start // ALIGN : -(-end // ALIGN)] = number
        return GLOBAL_BASE + start

    def mark(self) -> tuple[int, int]:
        """The state to which `release` returns."""
        return self.used, len(self.allocations)

    def release(self, mark: tuple[int, int]) -> None:
        """Free everything allocated since `mark`."""
        self.owners[mark[0] // ALIGN : self.used // ALIGN + 1] = 0
        self.used = mark[0]
        del self.allocations[mark[1] :]

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
        """The allocation that holds `address`, or None."""
        for allocation in self.allocations:
            if allocation.address <= address < allocation.address + allocation.size_bytes:
                return allocation
        return None

    def describe(self, address: int) -> str:
        """Where an address lies, for a person: relative to the nearest allocation if it is a global one."""
        if address < GLOBAL_BASE or not self.allocations:
            return f"address {address:#x}"

        def distance(allocation: Allocation) -> int:
            return max(allocation.address - address, address - allocation.address - allocation.size_bytes + 1, 0)

        nearest = min(self.allocations, key=distance)
        name = f"{nearest.name or 'a buffer'} ({nearest.size_bytes} bytes)"
        if address < nearest.address:
            return f"{nearest.address - address} bytes before {name}"
        behind = address - nearest.address - nearest.size_bytes
        return f"{behind} bytes past the end of {name}" if behind >= 0 else f"in {name}"

    def _offset(self, address: int, size_bytes: int) -> int:
        at = address - GLOBAL_BASE
        if at < 0 or at + size_bytes > self.used:
            raise LaunchError(f"device address {address:#x} (+{size_bytes} bytes) is not in global memory")
        return at
