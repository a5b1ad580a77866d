"""racecheck, first pass over global memory: which buffers may have a race, between CTAs or inside one.

Loads cost almost nothing: a buffer is only marked as read. Stores record the number of their thread for every byte,
and notice the number of another. A buffer may have a race if a byte was stored by two threads, or if it was read and
stored to, or changed atomically and accessed otherwise; `global_race_review.py` decides which of these are races.
Barriers and fences do not matter here. Every host thread has its own board, so none disturbs another; what two of
them stored to is compared after the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.core.errors import Unsupported
from weft.vm.context import (
    WARP_ALLOCATIONS,
    WARP_ID,
    WARP_OWNERS,
    WARP_WORKER,
    WORKER_BOARD,
    WORKER_CTA,
    WORKER_WARP_COUNT,
)
from weft.vm.host_memory import give_back
from weft.vm.ir import LANES, Builder, Value, const, lanes_of, vec, vector
from weft.vm.memory import ALIGN, GLOBAL_BASE, WINDOW_BYTES, GlobalMemory
from weft.vm.runtime.bounds import object_at
from weft.vm.runtime.shape import bits, each_lane, get, when
from weft.vm.runtime.watch import Access, BulkCopy, Scene

from .shadow import any_of, either

MOST_THREADS = (1 << 30) - 2
"""The number of threads of a launch that can be numbered."""
GLOBAL_LIMIT = WINDOW_BYTES << 12
_HEAD_BYTES, _FLAGS = 64, 8
"""The head holds the host address of the owners of bytes; after it there are so many bytes per allocation."""
_READ, _STORED, _ATOMIC, _TWICE, _LOADED_IN_BULK, _STORED_IN_BULK = range(6)
_PIECE = 64


def board_bytes(memory: GlobalMemory) -> int:
    """Return the size of a board: flags of allocations, and an i32 per byte of global memory."""
    return _owners_at(memory) + 4 * memory.used


def prepare_board(board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
    board[:8].view(np.uint64)[0] = board.ctypes.data + _owners_at(memory)


def _owners_at(memory: GlobalMemory) -> int:
    return -(-(_HEAD_BYTES + _FLAGS * len(memory.extents)) // 64) * 64


def require_copies(scene: Scene) -> None:
    """Raise Unsupported if a launch wrote to buffers that were not copied before it: it cannot be repeated."""
    if scene.copied is None:
        return
    _, stored, atomic, _ = _flags(scene.boards, scene.memory)
    others = set(np.flatnonzero(stored | atomic).tolist()) - scene.copied
    if scene.memory.heap is not None:  # its blocks are copied, or new
        others -= set(scene.memory.heap.numbers)
    if others:
        start = int(scene.memory.extents[min(others)][0])
        what = scene.memory.describe(GLOBAL_BASE + start)
        raise Unsupported(f"racecheck: the kernel wrote to {what} by an address that no parameter or buffer holds")


def _flags(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> npt.NDArray[np.bool_]:
    """Return whether each allocation was read, stored to, changed atomically, and stored to twice: four rows."""
    return np.moveaxis(np.bitwise_or.reduce(_rows(boards, memory), axis=0)[:, :4] != 0, 1, 0)


def _rows(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> npt.NDArray[np.uint8]:
    count = memory.numbers
    return np.stack([board[_HEAD_BYTES:][: _FLAGS * count].reshape(count, _FLAGS) for board in boards])


def suspects(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> list[int]:
    """Return the numbers of the allocations that may have a race."""
    flags = _rows(boards, memory)
    _, stored, _, _ = _flags(boards, memory)
    mixed = _mixed(boards, memory)
    for number in np.flatnonzero(stored & ~mixed).tolist():
        start, size = (int(value) for value in memory.extents[number])
        at = _owners_at(memory) + 4 * start
        owners = [
            board[at : at + 4 * size].view(np.int32)
            for board, flag in zip(boards, flags, strict=True)
            if flag[number, _STORED]
        ]
        seen = owners[0] != 0
        for other in owners[1:]:  # a thread runs on one host thread only
            mixed[number] |= bool((seen & (other != 0)).any())
            seen |= other != 0
    return [int(number) for number in np.flatnonzero(mixed)]


def copied_and_used(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> bool:
    """Whether bulk copies may race in global memory: they load what the launch writes, or they store."""
    flags = np.bitwise_or.reduce(_rows(boards, memory), axis=0) != 0
    written = flags[:, _STORED] | flags[:, _ATOMIC]
    return bool((flags[:, _LOADED_IN_BULK] & written).any() or flags[:, _STORED_IN_BULK].any())


def reads_what_it_writes(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> bool:
    """Whether threads of the launch read a buffer that threads of it write."""
    read, stored, atomic, _ = _flags(boards, memory)
    return bool((read & (stored | atomic)).any())


def _mixed(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> npt.NDArray[np.bool_]:
    """Return which allocations may have a race by the ways in which they were accessed, whoever did it."""
    read, stored, atomic, twice = _flags(boards, memory)
    mixed: npt.NDArray[np.bool_] = (read & stored) | (atomic & (read | stored)) | twice
    return mixed


def give_back_owners(boards: Sequence[npt.NDArray[np.uint8]], memory: GlobalMemory) -> None:
    """Free the owners of bytes, four times a buffer's size for each board, where `suspects` does not need them."""
    for number in np.flatnonzero(_mixed(boards, memory)).tolist():
        start, size = (int(value) for value in memory.extents[number])
        at = _owners_at(memory) + 4 * start
        for board in boards:
            give_back(board[at : at + 4 * size])


# -- compiled code ---------------------------------------------------------------------------------------------------


def thread_base(b: Builder) -> Value:
    """i32: one more than the number of lane 0's thread in the grid, counted in full warps."""
    warp = b.param("warp")
    worker = get(b, warp, WARP_WORKER)
    before = b.op("mul", get(b, worker, WORKER_CTA), get(b, worker, WORKER_WARP_COUNT))
    number = b.op("mul", b.op("add", before, get(b, warp, WARP_ID)), const("i32", LANES))
    return b.op("add", number, const("i32", 1))


def allocation_at(b: Builder, offset: Value) -> Value:
    """i64: number of the allocation that contains an offset (i64)."""
    granule = b.op("lshr", offset, const("i64", ALIGN.bit_length() - 1))
    place = b.offset(get(b, b.param("warp"), WARP_OWNERS), b.op("shl", granule, const("i64", 2)))
    return b.cast("zext", b.load("i32", place, align=4), "i64")


@dataclass(frozen=True)
class GlobalTouch:
    """Lanes that access global memory; `offsets` are <32 x i64> in the arena."""

    offsets: Value
    lanes: Value


def in_global(b: Builder, event: Access) -> GlobalTouch | None:
    """Return the lanes of an access that are in global memory; None if none can be."""
    if event.space == "global":
        return GlobalTouch(event.offsets, event.lanes)
    if event.space != "generic":
        return None
    into = b.op("sub", event.offsets, const(vec("i64"), GLOBAL_BASE))
    near = bits(b, b.icmp("ult", into, const(vec("i64"), GLOBAL_LIMIT)))
    return GlobalTouch(into, b.op("and", near, event.lanes))


def note(b: Builder, event: Access) -> None:
    """Record an access in the flags and owners of its buffer."""
    touch = in_global(b, event)
    if touch is None:
        return
    with when(b, b.icmp("ne", touch.lanes, const("i32", 0)), likely=True):
        _Note(b, event, touch).write()


def note_bulk(b: Builder, copy: BulkCopy) -> None:
    """Record a bulk copy in the flags of its buffer."""
    which = _LOADED_IN_BULK if copy.loads else _STORED_IN_BULK
    start, length = object_at(b, "global", copy.far)
    # A box that is outside its tensor moves nothing, and its tensor may be anywhere.
    with when(b, b.icmp("ult", b.op("sub", copy.far, start), length), likely=True):
        flag(b, get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BOARD), allocation_at(b, copy.far), which)


def flag(b: Builder, board: Value, number: Value, which: int) -> None:
    """Set a flag of an allocation."""
    at = b.op("shl", number, const("i64", _FLAGS.bit_length() - 1))
    b.store(const("i8", 1), b.offset(b.offset(board, _HEAD_BYTES + which), at), align=1)


class _Note:
    def __init__(self, b: Builder, event: Access, touch: GlobalTouch) -> None:
        self.b, self.event, self.touch = b, event, touch
        self.board = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BOARD)

    def write(self) -> None:
        b, event, touch = self.b, self.event, self.touch
        which = _ATOMIC if event.atomic else _STORED if event.store else _READ
        if event.contiguous or event.uniform:
            first = b.extract(touch.offsets, 0)
        else:
            first = b.extract(touch.offsets, b.intrinsic("cttz", "i32", [touch.lanes, const("i1", 1)]))
        number = allocation_at(b, first)
        self.flag(number, which)
        if not event.contiguous and not event.uniform:
            self.flag_others(number, which)
        if which == _STORED:
            (self.own_run if event.contiguous else self.own_lanes)()

    def flag(self, number: Value, which: int) -> None:
        flag(self.b, self.board, number, which)

    def flag_others(self, number: Value, which: int) -> None:
        """Flag the buffers of lanes that do not access the first lane's buffer, one by one; there are rarely any."""
        b, touch = self.b, self.touch
        record = b.offset(get(b, b.param("warp"), WARP_ALLOCATIONS), b.op("shl", number, const("i64", 4)))
        start, size = b.load("i64", record, align=8), b.load("i64", b.offset(record, 8), align=8)
        inside = bits(b, b.icmp("ult", b.op("sub", touch.offsets, b.splat(start)), b.splat(size)))
        rest = b.op("and", touch.lanes, b.op("xor", inside, const("i32", -1)))
        with when(b, b.icmp("ne", rest, const("i32", 0)), likely=False), each_lane(b, rest) as lane:
            self.flag(allocation_at(b, b.extract(touch.offsets, lane)), which)

    def own_run(self) -> None:
        """Take the bytes of all lanes, which are one contiguous run."""
        b, size = self.b, self.event.bytes
        first = b.extract(self.touch.offsets, 0)
        place, base = self.owners_of(first), thread_base(b)
        others = []
        step = min(LANES * size, _PIECE)
        for at in range(0, LANES * size, step):
            lanes = vector("i32", ((at + byte) // size for byte in range(step)))
            others.append(self.take(b.offset(place, 4 * at), b.op("add", b.splat(base, step), lanes)))
        with when(b, any_of(b, either(b, others, "or")), likely=False):
            self.flag(allocation_at(b, first), _TWICE)

    def own_lanes(self) -> None:
        b, size = self.b, self.event.bytes
        base = thread_base(b)
        with each_lane(b, self.touch.lanes) as lane:
            offset = b.extract(self.touch.offsets, lane)
            me = b.op("add", base, lane)
            other = self.take(self.owners_of(offset), me if size == 1 else b.splat(me, size))
            with when(b, other if size == 1 else any_of(b, other), likely=False):
                self.flag(allocation_at(b, offset), _TWICE)

    def owners_of(self, offset: Value) -> Value:
        return self.b.offset(self.b.load("ptr", self.board, align=8), self.b.op("shl", offset, const("i64", 2)))

    def take(self, place: Value, me: Value) -> Value:
        """Make bytes mine; return which belonged to another thread."""
        b = self.b
        old = b.load(vec("i32", lanes_of(me.ty)), place, align=4)
        b.store(me, place, align=4)
        return b.op("and", b.icmp("ne", old, me), b.icmp("ne", old, const(old.ty, 0)))
