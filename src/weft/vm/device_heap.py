"""The heap of malloc and free inside kernels: a window of global memory whose blocks come and go during a launch.

The window, and the numbers of the blocks in it, are reserved before the first launch that needs them, because compiled
code must find memory where it was when the launch began. A block is a buffer like any other: accesses are checked
against it. Blocks are placed one after the other; the place of a freed block is used again only when the window is
full, so that an access to a freed block is reported as such, and threads that use one place after the other are not
taken for a race. Kernels that allocate run on one host thread in a fixed order, so addresses are the same in each run.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from weft.core.records import Place

from .buffers import ALIGN, RED_ZONE, Allocation, merged, shown_name
from .memory import GLOBAL_BASE, Bytes, GlobalMemory

GRAIN = 16
"""A block takes a multiple of so many bytes of the heap's size; CUDA promises this alignment."""
ROOM_BYTES = 1 << 26
"""Addresses of the window for the gaps between blocks, in addition to twice the heap's size."""
LEAST_GAP, MOST_GAP = ALIGN, 1 << 12
LEAST_PLACE = ALIGN + LEAST_GAP
FILL = 0xFF
"""The contents of a new block: arbitrary for the program, and the same in each run."""


@dataclass(frozen=True)
class Block:
    """A block and its place: the bytes from `low` to `high` of the arena, which are the block and its gap."""

    number: int
    buffer: Allocation
    low: int
    high: int


@dataclass(frozen=True)
class HeapState:
    """A heap at one moment, to which it can be set back."""

    live: Mapping[int, Block]
    freed: tuple[Block, ...]
    of_launch: int
    gaps: tuple[tuple[int, int], ...]
    unused: tuple[int, ...]
    next_number: int
    fresh: int
    made: int
    reused: tuple[tuple[int, int], ...]
    written: Mapping[int, Bytes] = field(default_factory=dict)
    """What of each live block was written, where a checker uses it."""


class DeviceHeap:
    """Blocks that kernels allocate and free. All live until they are freed, or until `close`."""

    def __init__(self, memory: GlobalMemory, size_bytes: int) -> None:
        self.memory, self.size_bytes = memory, size_bytes
        self.low, self.high = memory.reserve(2 * size_bytes + ROOM_BYTES)
        self.numbers = memory.reserve_numbers((self.high - self.low) // LEAST_PLACE + 1)
        self.live: dict[int, Block] = {}
        """By address."""
        self._freed: list[Block] = []
        """Blocks whose place is not used again yet, oldest first."""
        self._of_launch = 0
        """The number of those that were freed before the launch."""
        self._gaps: list[tuple[int, int]] = []
        self._unused: list[int] = []
        """Numbers that can be used again; from `_next_number` on, none was used."""
        self._next_number = self.numbers.start
        self.fresh = self.low
        """Start of the part that was never used."""
        self._made = 0
        self.taken_bytes = 0
        """Bytes of the heap's size that are in use."""
        self.reused: list[tuple[int, int]] = []
        """Offsets of places that were used for several blocks in one launch."""

    def begin(self) -> None:
        """Start a launch."""
        for block in self._freed[self._of_launch :]:
            self.memory.extents[block.number] = 0
        self._of_launch = len(self._freed)
        self.reused = []

    def allocate(self, size_bytes: int, where: Place | None, align: int = ALIGN) -> int:
        """Return the address of a new block, or 0 if there is no room or the alignment is no power of two."""
        if align < 1 or align & (align - 1) or size_bytes > self.size_bytes:
            return 0
        name = f"malloc {self._made + 1}" + (f" ({_line(where)})" if where else "")
        if self.taken_bytes + _grains(size_bytes) > self.size_bytes:
            return 0
        placed = self._place(size_bytes, max(align, ALIGN))
        if placed is None:
            return 0
        start, low, high = placed
        end = start + size_bytes
        self._made += 1
        self.taken_bytes += _grains(size_bytes)
        block = Block(self._number(), Allocation(GLOBAL_BASE + start, size_bytes, name), low, high)
        self.live[block.buffer.address] = block
        self.memory.show(block.number, block.buffer)
        self.memory.arena[start : min(end + RED_ZONE, high)] = FILL
        if self.memory.written is not None:
            self.memory.written[start:end] = 0
            self.memory.written[end:high] = 0xFF
        return block.buffer.address

    def free(self, address: int, where: Place | None) -> str:
        """Free the block at `address`; return what is wrong with that, or nothing. NULL is no block, and not wrong."""
        if not address:
            return ""
        block = self.live.pop(address, None)
        if block is None:
            return self._problem(address)
        self.taken_bytes -= _grains(block.buffer.size_bytes)
        gone = replace(block.buffer, of=f", freed at {_line(where)}" if where else "")
        self.memory.hide(block.number)
        # Until the launch ends, its checkers find out by the number where the block was.
        self.memory.extents[block.number] = block.buffer.address - GLOBAL_BASE, block.buffer.size_bytes
        self._freed.append(replace(block, buffer=gone))
        return ""

    def freed_owner(self, address: int) -> Allocation | None:
        """Return the freed block that contained an address, until its place is used again."""
        for block in reversed(self._freed):
            if 0 <= address - block.buffer.address < max(block.buffer.size_bytes, 1):
                return block.buffer
        return None

    @property
    def freed_in_launch(self) -> list[Allocation]:
        """The blocks that were freed since the launch began."""
        return [block.buffer for block in self._freed[self._of_launch :]]

    def close(self) -> None:
        """Free all blocks, and return the window to the memory."""
        for block in self.live.values():
            self.memory.hide(block.number)
        for block in self._freed:
            self.memory.extents[block.number] = 0
        self.memory.give_back(self.low, self.high, self.numbers)

    def state(self) -> HeapState:
        """Return the present state."""
        written = self.memory.written
        return HeapState(
            dict(self.live),
            tuple(self._freed),
            self._of_launch,
            tuple(self._gaps),
            tuple(self._unused),
            self._next_number,
            self.fresh,
            self._made,
            tuple(self.reused),
            {} if written is None else {at: written[_bytes_of(block)].copy() for at, block in self.live.items()},
        )

    def set(self, state: HeapState) -> None:
        """Set the heap back to a state. The contents of its blocks are the caller's to restore."""
        for block in self.live.values():
            self.memory.hide(block.number)
        for block in self._freed:
            self.memory.extents[block.number] = 0
        self.live, self._freed = dict(state.live), list(state.freed)
        self._of_launch, self._gaps, self._unused = state.of_launch, list(state.gaps), list(state.unused)
        self._next_number = state.next_number
        self.taken_bytes = sum(_grains(block.buffer.size_bytes) for block in self.live.values())
        self.fresh, self._made, self.reused = state.fresh, state.made, list(state.reused)
        for block in self.live.values():
            self.memory.show(block.number, block.buffer)
        for block in self._freed[self._of_launch :]:
            self.memory.extents[block.number] = block.buffer.address - GLOBAL_BASE, block.buffer.size_bytes
        if self.memory.written is not None:
            for at, bytes_written in state.written.items():
                self.memory.written[_bytes_of(self.live[at])] = bytes_written

    def _problem(self, address: int) -> str:
        gone = self.freed_owner(address)
        if gone is not None and gone.address == address:
            return f"second free of {gone.name}{gone.of}"
        owner = gone or self.memory.owner(address)
        if owner is None:
            return f"free of {address:#x}, which malloc did not return"
        name, offset = shown_name(owner.name), address - owner.address
        return f"free of an address that malloc did not return: {f'offset {offset} in ' if offset else ''}{name}"

    def _number(self) -> int:
        if self._unused:
            return self._unused.pop()
        self._next_number += 1
        return self._next_number - 1

    def _place(self, size_bytes: int, align: int) -> tuple[int, int, int] | None:
        """Return where a new block starts, and where its place starts and ends; None if nothing fits."""
        start, top = _bounds(self.fresh, size_bytes, align)
        if top <= self.high:
            low, self.fresh = self.fresh, top
            return start, low, top
        found = self._in_gap(size_bytes, align)
        if found is None and self._freed:
            self._use_freed_places()
            found = self._in_gap(size_bytes, align)
        return found

    def _in_gap(self, size_bytes: int, align: int) -> tuple[int, int, int] | None:
        for index, (low, high) in enumerate(self._gaps):
            start, top = _bounds(low, size_bytes, align)
            if top <= high:
                self._gaps[index : index + 1] = [(top, high)] if top < high else []
                return start, low, top
        return None

    def _use_freed_places(self) -> None:
        """Let new blocks use the places of all freed ones."""
        self.reused += [(block.low, block.high) for block in self._freed[self._of_launch :]]
        self._gaps = merged([*self._gaps, *((block.low, block.high) for block in self._freed)])
        for block in self._freed:
            self.memory.extents[block.number] = 0
            self._unused.append(block.number)
        self._freed, self._of_launch = [], 0


@contextmanager
def repeated(memory: GlobalMemory, before: HeapState | None) -> Iterator[None]:
    """Set the heap of a memory to an earlier state inside the context, then to the present one."""
    heap = heap_in(memory)
    if heap is None or before is None:
        yield
        return
    now = heap.state()
    heap.set(before)
    try:
        yield
    finally:
        heap.set(now)


def heap_of(memory: GlobalMemory) -> DeviceHeap:
    """Return the heap of a device's memory; it is made at the first use."""
    heap = heap_in(memory)
    if heap is None:
        memory.heap = heap = DeviceHeap(memory, memory.heap_bytes)
    return heap


def heap_in(memory: GlobalMemory) -> DeviceHeap | None:
    """Return the heap, if a launch has needed it."""
    return memory.heap if isinstance(memory.heap, DeviceHeap) else None


def _bounds(low: int, size_bytes: int, align: int) -> tuple[int, int]:
    """Return start and end of a block's place, if it begins at `low`."""
    start = -(-low // align) * align
    gap = min(max(size_bytes, LEAST_GAP), MOST_GAP)
    return start, max(-(-(start + size_bytes + gap) // ALIGN) * ALIGN, start + LEAST_PLACE)


def _bytes_of(block: Block) -> slice:
    start = block.buffer.address - GLOBAL_BASE
    return slice(start, start + block.buffer.size_bytes)


def _line(place: Place) -> str:
    return f"{Path(place.file).name}:{place.line}"


def _grains(size_bytes: int) -> int:
    """Return how much of the heap's size a block takes."""
    return max(-(-size_bytes // GRAIN), 1) * GRAIN
