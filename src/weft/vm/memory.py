"""The device's address space: private, never host pointers, every allocation between red zones.

A device address shows its window. Global memory is one growing arena of the host; a device address in its window is
`GLOBAL_BASE + offset`. Shared, local and parameter addresses are small offsets in their own spaces; their windows
exist for generic addressing.

There are many addresses, and host memory is committed only where it is touched. So each buffer is followed by a gap as
large as the buffer (up to 256 KB), in which the usual overruns end. The place of a freed buffer stays unused for a
while, so that a pointer kept from an earlier launch does not reach another buffer.
"""

import mmap
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Protocol

import numpy as np

from weft.core.errors import DeviceMemoryError, LaunchError

from .buffers import ALIGN as ALIGN
from .buffers import LEAST_GAP as LEAST_GAP
from .buffers import RED_ZONE as RED_ZONE
from .buffers import Allocation as Allocation
from .buffers import PlacedBuffer, end_of_gap, merged
from .buffers import miss as miss
from .buffers import shown_name as shown_name
from .host_memory import SPARSE_BYTES, aligned_bytes, sparse_zeros
from .host_memory import Bytes as Bytes
from .quarantine import Quarantine

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
FREED_BYTES = 1 << 24
"""Places of freed buffers are used again when this much of the arena is used."""
QUARANTINE_PART, QUARANTINE_COUNT = 8, 1 << 14
"""Places of buffers that are freed one by one are used again, the oldest first, when they are more than this part of
the arena, or more than this number."""
DISCARD_BYTES = 1 << 16
"""Host memory of freed buffers at least this large is returned."""
HEAP_BYTES = 8 << 20
"""Size of the heap of malloc inside kernels, unless the program sets CU_LIMIT_MALLOC_HEAP_SIZE."""


class Heap(Protocol):
    """What memory asks of the heap of malloc inside kernels (`device_heap.py`)."""

    numbers: range
    fresh: int
    high: int

    @property
    def freed_in_launch(self) -> list[Allocation]: ...

    def freed_owner(self, address: int) -> Allocation | None: ...


class GlobalMemory:
    """Global memory of one device: buffers with gaps between them, in an arena that grows or is given.

    A given `arena` neither moves nor grows. `discard` is called with the offset and size of the whole pages of a freed
    buffer, whose contents are no longer needed.
    """

    def __init__(
        self,
        capacity_bytes: int = 1 << 26,
        *,
        arena: Bytes | None = None,
        discard: Callable[[int, int], None] | None = None,
    ) -> None:
        self.arena = aligned_bytes(capacity_bytes) if arena is None else arena
        self.fixed = arena is not None
        self.discard = discard
        self.used = RED_ZONE
        """End of the last place that is in use or in quarantine."""
        self.arena[: self.used] = 0xFF
        self.owners = sparse_zeros(4 * (len(self.arena) // ALIGN + 1)).view(np.uint32)
        """Per granule: the number of the allocation there, from 1; 0 for none."""
        self.extents = np.zeros((64, 2), np.int64)
        """Per allocation number: offset in the arena and size."""
        self.written: Bytes | None = None
        """A byte per byte of the arena, once `keep_written` was called: 255 where it was written, 0 where not."""
        self.numbers = 1
        """One more than the highest allocation number so far."""
        self._live: dict[int, PlacedBuffer] = {}
        """By number, oldest first."""
        self._starts: dict[int, int] = {}
        """Address → number of the live buffer that starts there."""
        self._made = 0
        """How many allocations were made so far."""
        self._unused_numbers: list[int] = []
        self._gaps: list[tuple[int, int]] = []
        """Places below `used` that can be used again: start and end, in order, none next to another."""
        self._quarantine = Quarantine()
        """Freed buffers whose place is not used again yet, oldest first."""
        self._withdrawn: dict[int, tuple[int, PlacedBuffer]] = {}
        """Address → number and place of a buffer that kernels must not reach for now."""
        self.heap_bytes = HEAP_BYTES
        self.heap: Heap | None = None
        """The heap of malloc inside kernels, once a launch has needed it."""

    @property
    def allocations(self) -> list[Allocation]:
        """The live buffers, oldest first."""
        return [each.buffer for each in self._live.values()]

    def keep_written(self) -> Bytes:
        """Record from now on which bytes are written; existing bytes count as written."""
        if self.used > WINDOW_BYTES:
            raise LaunchError(f"initcheck takes {WINDOW_BYTES} bytes of global memory; this run uses {self.used}")
        if self.written is None:
            self.written = self._shadow()
            self.written[: self.used] = 0xFF
            if self.heap is not None:
                self.written[self.heap.fresh : self.heap.high] = 0
        return self.written

    def mark_written(self, address: int, size_bytes: int, *, written: bool = True) -> None:
        """Record that the host wrote bytes, or that their contents are arbitrary; nothing if no checker uses it."""
        if self.written is not None:
            at = self._offset(address, size_bytes)
            self.written[at : at + size_bytes] = 0xFF if written else 0

    def allocate(self, size_bytes: int, name: str = "", *, align: int = ALIGN, written: bool = True) -> int:
        """Reserve `size_bytes`; return the device address. The contents are arbitrary.

        `written`: whether the bytes count as initialised, because the caller will write all of them.
        """
        start, low, top = self._place(size_bytes, max(align, ALIGN))
        end = start + size_bytes
        self.arena[end : end + RED_ZONE] = 0xFF
        self._add(self._number(), PlacedBuffer(Allocation(GLOBAL_BASE + start, size_bytes, name), low, top, self._made))
        if self.written is not None:
            self.written[start:end] = 0xFF if written else 0
            self.written[end:top] = 0xFF
        return GLOBAL_BASE + start

    def free(self, address: int) -> Allocation:
        """Free the buffer that starts at `address`; return it. Its place stays unused for a while."""
        if address in self._withdrawn:
            self.restore(address)
        gone = self._free(self._number_at(address), "")
        limit = len(self.arena) // QUARANTINE_PART
        while self._quarantine.size_bytes > limit or len(self._quarantine) > QUARANTINE_COUNT:
            self._reuse_oldest()
        return gone

    def adopt(self, buffer: Allocation) -> None:
        """Let kernels reach a buffer of the arena that this memory did not place."""
        start = buffer.address - GLOBAL_BASE  # the place is empty: it is not this memory's to use again
        self._add(self._number(), PlacedBuffer(buffer, start, start, self._made))

    def disown(self, address: int) -> None:
        """End that kernels can reach an adopted buffer; nothing if there is none."""
        if address in self._starts:
            self._unused_numbers.append(self._starts[address])
            self._remove(self._starts[address])

    def reserve(self, size_bytes: int) -> tuple[int, int]:
        """Return start and end, in the arena, of a place in which the caller shows and hides buffers."""
        _, low, high = self._place(size_bytes, ALIGN)
        if self.written is not None:
            self.written[low:high] = 0
        return low, high

    def reserve_numbers(self, count: int) -> range:
        """Return numbers for the buffers that the caller shows."""
        first, self.numbers = self.numbers, self.numbers + count
        if self.numbers > len(self.extents):
            more = np.zeros((self.numbers - len(self.extents) + 64, 2), np.int64)
            self.extents = np.concatenate([self.extents, more])
        return range(first, self.numbers)

    def give_back(self, low: int, high: int, numbers: Iterable[int]) -> None:
        """Take back what was reserved. No buffer is shown there."""
        self._set_gaps([*self._gaps, (low, high)])
        self._unused_numbers.extend(numbers)
        self.heap = None

    def show(self, number: int, buffer: Allocation) -> None:
        """Let kernels reach a buffer in a reserved place, with a reserved number."""
        start = buffer.address - GLOBAL_BASE
        self._live[number] = PlacedBuffer(buffer, start, start, self._made)
        self._made += 1
        self.extents[number] = start, buffer.size_bytes
        self._own(buffer, number)

    def hide(self, number: int) -> None:
        """End that kernels can reach a buffer that was shown."""
        self._own(self._live.pop(number).buffer, 0)
        self.extents[number] = 0

    def withdraw(self, address: int) -> None:
        """Treat a buffer as freed until `restore`. It keeps its address."""
        number = self._number_at(address)
        self._withdrawn[address] = number, self._remove(number)

    def restore(self, address: int) -> None:
        """Let kernels reach a buffer again. Its contents are arbitrary."""
        if address not in self._withdrawn:
            raise LaunchError(f"device address {address:#x} is not the start of a buffer that was withdrawn")
        number, placed = self._withdrawn.pop(address)
        self._add(number, replace(placed, made=self._made))
        self.mark_written(address, placed.buffer.size_bytes, written=False)

    def mark(self) -> int:
        """Return the state to which `release` returns."""
        return self._made

    def release(self, mark: int) -> None:
        """Free everything allocated since `mark`. Its place stays unused until FREED_BYTES are used."""
        since = takewhile(lambda number: self._live[number].made >= mark, reversed(self._live))
        for number in reversed(tuple(since)):
            if self.heap is None or number not in self.heap.numbers:  # blocks of malloc live until they are freed
                self._free(number, " of an earlier launch")
        if self.used > FREED_BYTES:
            self.rewind()

    def rewind(self) -> None:
        """Use the places of freed buffers again: before a permanent buffer is placed, or when they add up."""
        self._set_gaps([*self._gaps, *self._quarantine.pop_all()])

    def _set_gaps(self, places: Iterable[tuple[int, int]]) -> None:
        """Use these places again, all at once: there may be thousands."""
        self._gaps = merged(places)
        if self._gaps and self._gaps[-1][1] == self.used:
            self.used = self._gaps.pop()[0]

    def _add(self, number: int, placed: PlacedBuffer) -> None:
        """Make a buffer live."""
        self._live[number] = placed
        self._starts[placed.buffer.address] = number
        self._made += 1
        self.extents[number] = placed.buffer.address - GLOBAL_BASE, placed.buffer.size_bytes
        self._own(placed.buffer, number)

    def _remove(self, number: int) -> PlacedBuffer:
        """End a buffer's life; return its place."""
        placed = self._live.pop(number)
        del self._starts[placed.buffer.address]
        self.extents[number] = 0
        self._own(placed.buffer, 0)
        return placed

    def _own(self, buffer: Allocation, number: int) -> None:
        start = buffer.address - GLOBAL_BASE
        self.owners[start // ALIGN : -(-(start + buffer.size_bytes) // ALIGN)] = number

    def _number_at(self, address: int) -> int:
        """Return the number of the buffer that starts at an address."""
        if address not in self._starts:
            raise LaunchError(f"device address {address:#x} is not the start of a buffer that can be freed")
        return self._starts[address]

    def _number(self) -> int:
        """Return the number of a new allocation."""
        if self._unused_numbers:
            return self._unused_numbers.pop()
        number, self.numbers = self.numbers, self.numbers + 1
        if number == len(self.extents):
            self.extents = np.concatenate([self.extents, np.zeros_like(self.extents)])
        return number

    def _place(self, size_bytes: int, align: int) -> tuple[int, int, int]:
        """Return where a new buffer starts, and where its place does and ends: in the first gap that fits, or last."""
        for index, (low, high) in enumerate(self._gaps):
            start = -(-low // align) * align
            top = end_of_gap(start, size_bytes)
            if top <= high:
                self._gaps[index : index + 1] = [(top, high)] if top < high else []
                return start, low, top
        low = self.used
        start = -(-low // align) * align
        top = end_of_gap(start, size_bytes)
        if top > len(self.arena):
            if self.fixed and not self._quarantine:
                free = len(self.arena) - self.used + sum(high - low for low, high in self._gaps)
                raise DeviceMemoryError(f"out of device memory: {size_bytes} bytes requested, {free} bytes free")
            if self.fixed:
                self.rewind()
                return self._place(size_bytes, align)
            self._grow(top)
        self.used = top
        return start, low, top

    def _grow(self, top: int) -> None:
        grown = aligned_bytes(max(top, 2 * len(self.arena)))
        grown[: self.used] = self.arena[: self.used]
        self.arena = grown
        owners = np.zeros(len(grown) // ALIGN + 1, np.uint32)
        owners[: len(self.owners)] = self.owners
        self.owners = owners
        if self.written is not None:
            written = self._shadow()
            written[: self.used] = self.written[: self.used]
            self.written = written

    def _shadow(self) -> Bytes:
        size = len(self.arena) + 64  # a word may be read across the end
        return aligned_bytes(size) if size < SPARSE_BYTES else sparse_zeros(size)

    def _free(self, number: int, of: str) -> Allocation:
        """Put the place of a buffer into quarantine."""
        placed = self._remove(number)
        gone = replace(placed.buffer, of=of)
        start = gone.address - GLOBAL_BASE
        self._unused_numbers.append(number)
        self._quarantine.append(replace(placed, buffer=gone))
        if self.discard is not None and gone.size_bytes >= DISCARD_BYTES:
            first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
            last = (start + gone.size_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
            self.discard(first, last - first)
        return gone

    def _reuse_oldest(self) -> None:
        """End the quarantine of one place."""
        low, high = self._quarantine.pop_oldest()
        at = bisect_left(self._gaps, (low, high))
        if at < len(self._gaps) and self._gaps[at][0] == high:
            high = self._gaps.pop(at)[1]
        if at and self._gaps[at - 1][1] == low:
            at -= 1
            low = self._gaps.pop(at)[0]
        if high == self.used:
            self.used = low
        else:
            self._gaps.insert(at, (low, high))

    def copy_buffers(self, source: Bytes, numbers: Collection[int] | None = None) -> Bytes:
        """Return an arena with the contents that live buffers (None: all) have in `source`; the other bytes are 0."""
        copied = sparse_zeros(self.used)
        self.put_buffers(copied, source, numbers)
        return copied

    def put_buffers(self, target: Bytes, source: Bytes, numbers: Collection[int] | None = None) -> None:
        """Copy the contents of live buffers from one arena to another."""
        for number in self._live if numbers is None else numbers:
            start, size = (int(value) for value in self.extents[number])
            target[start : start + size] = source[start : start + size]

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
        at = address - GLOBAL_BASE
        number = int(self.owners[at // ALIGN]) if 0 <= at < self.used else 0
        found = self._live[number].buffer if number else None
        return found if found is not None and address < found.address + found.size_bytes else None

    def freed_owner(self, address: int) -> Allocation | None:
        """Return the freed or withdrawn buffer that contained `address`, until its place is used again."""
        gone = self._quarantine.owner(address)
        if gone is not None:
            return gone
        for _, placed in self._withdrawn.values():
            if 0 <= address - placed.buffer.address < placed.buffer.size_bytes:
                return placed.buffer
        return self.heap.freed_owner(address) if self.heap is not None else None

    def nearest(self, address: int) -> Allocation | None:
        """Return the buffer that an access to `address` most likely meant: one that was live in the last launch."""
        gone = self.heap.freed_in_launch if self.heap is not None else []
        return min(
            [*self.allocations, *gone], key=lambda each: miss(address, each.address, each.size_bytes), default=None
        )

    def describe(self, address: int) -> str:
        """Describes an address for the user: relative to the nearest allocation if it is a global one."""
        nearest = self.nearest(address)
        if address < GLOBAL_BASE or nearest is None:
            return f"address {address:#x}"
        name, offset = f"{shown_name(nearest.name)} ({nearest.size_bytes} bytes)", address - nearest.address
        if offset < 0:
            return f"{-offset} bytes before the start of {name}"
        behind = offset - nearest.size_bytes
        return f"{behind} bytes past the end of {name}" if behind >= 0 else f"offset {offset} in {name}"

    def _offset(self, address: int, size_bytes: int) -> int:
        at = address - GLOBAL_BASE
        if at < 0 or at + size_bytes > self.used:
            raise LaunchError(f"device address {address:#x} (+{size_bytes} bytes) is not in global memory")
        return at
