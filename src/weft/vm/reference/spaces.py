"""The storage of the state spaces, and which of its addresses a kernel may touch."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..last_word import WORD_BYTES
from ..layout import Layout, shared_objects
from ..memory import (
    GLOBAL_BASE,
    LOCAL_BASE,
    LOCAL_START,
    PARAM_BASE,
    SHARED_BASE,
    SHARED_START,
    WINDOW_BYTES,
    Bytes,
    GlobalMemory,
)

SHARED_FILL = 0xFF
LOCAL_FILL = 0xFF
STACK_BYTES = 1 << 16
"""Local memory for the frames of called functions, per lane."""

Addresses = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]


@dataclass
class SpaceStorage:
    """Storage of one state space; a kernel may touch the addresses from `start` to `end`."""

    name: str
    data: Bytes
    start: int
    end: int
    lane_bytes: int = 0
    """Distance between the private copies of neighbouring lanes (local memory only)."""
    writable: bool = True
    objects: tuple[tuple[int, int], ...] | None = None
    """Offset and size of the allocations or shared arrays: the bytes between them must not be touched."""

    def holds(self, at: npt.NDArray[np.int64], size: int, *, last_word: bool = False) -> Flags:
        """Return whether [at, at + size) may be touched; with `last_word`, an object's last word completely."""
        inside: Flags = (at >= self.start) & (at <= self.end - size)
        if self.objects is not None:
            starts, ends = self._bounds
            if last_word:
                ends = -(-ends // WORD_BYTES) * WORD_BYTES
            inside &= ((starts <= at[:, None]) & (at[:, None] + size <= ends)).any(axis=1)
        return inside

    def set_objects(self, objects: tuple[tuple[int, int], ...]) -> None:
        """Let a kernel touch these objects from now on, in place of those before."""
        self.objects = objects
        self.__dict__.pop("_bounds", None)

    @cached_property
    def _bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the starts and ends of the objects as arrays, because a module may have thousands of variables."""
        table = np.array(self.objects or (), np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 0] + table[:, 1]


def global_region(memory: GlobalMemory) -> SpaceStorage:
    """Return the arena, of which only allocations may be touched."""
    return SpaceStorage("global", memory.arena, 0, memory.used, objects=global_objects(memory))


def global_objects(memory: GlobalMemory) -> tuple[tuple[int, int], ...]:
    """Return offset and size of the allocations."""
    return tuple((allocation.address - GLOBAL_BASE, allocation.size_bytes) for allocation in memory.allocations)


def shared_region(layout: Layout, dynamic_bytes: int) -> SpaceStorage:
    """Return the static arrays, then the dynamic block; the system's part is zero."""
    end = layout.shared_bytes + dynamic_bytes
    objects = tuple(shared_objects(layout, dynamic_bytes))
    data = np.full(end, SHARED_FILL, np.uint8)
    data[layout.reserved.start : layout.reserved.stop] = 0
    return SpaceStorage("shared", data, SHARED_START, end, objects=objects)


def local_region(layout: Layout, *, calls: bool) -> SpaceStorage:
    """Return thirty-two private copies, lane after lane; called functions stack their frames above the kernel's."""
    lane_bytes = layout.local_bytes + (STACK_BYTES if calls else 0)
    data = np.full(32 * lane_bytes, LOCAL_FILL, np.uint8)
    return SpaceStorage("local", data, LOCAL_START, lane_bytes, lane_bytes)


def param_region(params: bytes) -> SpaceStorage:
    """Return the launch's parameter block, which is read-only."""
    return SpaceStorage("param", np.frombuffer(params, np.uint8), 0, len(params), writable=False)


WINDOWS = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE, "global": 0, "const": 0}
"""The offset that cvta adds. Global and constant addresses are already generic."""


def in_window(space: str, address: Addresses) -> Flags:
    """Return which generic addresses are in the window of `space`."""
    if space == "global":
        above: Flags = address >= np.uint64(GLOBAL_BASE)
        return above
    base = np.uint64(WINDOWS[space])
    inside: Flags = (address >= base) & (address < base + np.uint64(WINDOW_BYTES))
    return inside


def to_offset(space: str, address: Addresses, *, generic: bool) -> npt.NDArray[np.int64]:
    """Return the position in the region's storage; out of every range for addresses of another window."""
    base = GLOBAL_BASE if space in ("global", "const") else WINDOWS[space] if generic else 0
    return (address - np.uint64(base)).astype(np.int64)
