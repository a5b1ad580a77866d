"""racecheck, second pass over global memory: which bytes of the suspicious buffers have conflicting accesses.

A second run, on one host thread, in which every byte of these buffers has three words: who wrote it, who read it (a
thread; several of one CTA, by its first thread; or several CTAs), and marks: which instructions accessed it, and in
which neighbourhood (warp, CTA, grid) there are two accesses of which one writes and not both are atomic. Order does
not matter here, so no pair that could race is missed.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from weft.vm.context import WARP_ID, WARP_WORKER, WORKER_BOARD, WORKER_WARP_COUNT
from weft.vm.ir import LANES, Builder, Value, const
from weft.vm.memory import GlobalMemory
from weft.vm.runtime.shape import count_range, each_lane, function, get, symbol, when
from weft.vm.runtime.watch import Access, Instrumentation

from .global_race import allocation_at, in_global, thread_base
from .shared_probe import source_digest

BETWEEN_CTAS, IN_CTA, IN_WARP, AMONG_SEVERAL = 1 << 31, 1 << 30, 1 << 29, 1 << 28
"""Marks of a byte: the neighbourhood of the two accesses; the last: with one of several threads of the CTA. The bits
below them stand for instructions."""
CONFLICT = BETWEEN_CTAS | IN_CTA | IN_WARP | AMONG_SEVERAL
_SITES = 28
_ATOMIC, _SEVERAL, _WHO = 1 << 31, 1 << 30, (1 << 30) - 1
"""Bits of an entry: only atomic; several threads of the CTA whose first one this is; a thread (all ones: several)."""
_HEAD_BYTES = 64
_WRITERS, _READERS, _MARKS, _WANTED = 0, 8, 16, 24
"""Places in the head: host addresses."""
_AT_ONCE = 1 << 22
"""Marks that are compared at once: a temporary array for all of them would have four times the buffer's size."""
_TOUCH = "probe.global.touch"
_VERBS = ("load", "store", "atomic")


class GlobalShadow(Instrumentation):
    """Watches the bytes of some allocations, given by number."""

    def __init__(self, allocations: Sequence[int]) -> None:
        self.allocations = tuple(allocations)
        self.key = f"global-shadow-{source_digest()}"

    def board_bytes(self, memory: GlobalMemory) -> int:
        return _HEAD_BYTES + len(memory.extents) + 64 + 12 * memory.used

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        wanted = _HEAD_BYTES
        board[wanted + np.array(self.allocations)] = 1
        words = -(-(wanted + len(memory.extents)) // 64) * 64
        head = board[:_HEAD_BYTES].view(np.uint64)
        for number, place in enumerate((_WRITERS, _READERS, _MARKS)):
            head[place // 8] = board.ctypes.data + words + 4 * memory.used * number
        head[_WANTED // 8] = board.ctypes.data + wanted
        self.marks = board[words + 8 * memory.used :][: 4 * memory.used].view(np.uint32)

    def met(self, memory: GlobalMemory) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Return the offsets of the bytes with conflicting accesses, and their marks, once after the run.

        The marks are dropped: the functions that were compiled for this watcher keep it for the whole process.
        """
        marks, found = self.marks, []
        del self.marks
        for number in self.allocations:
            start, size = (int(value) for value in memory.extents[number])
            for low in range(start, start + size, _AT_ONCE):
                found.append(low + np.flatnonzero(marks[low : min(low + _AT_ONCE, start + size)] & CONFLICT))
        offsets = np.concatenate([np.zeros(0, np.intp), *found])
        return offsets, marks[offsets]

    def access(self, b: Builder, event: Access) -> None:
        touch = in_global(b, event)
        if touch is None:
            return
        verb = "atomic" if event.atomic else "store" if event.store else "load"
        base = thread_base(b)
        with each_lane(b, touch.lanes) as lane:
            args = [b.param("warp"), b.param("site"), b.extract(touch.offsets, lane), b.op("add", base, lane)]
            b.call(symbol(f"{_TOUCH}.{verb}"), "void", [*args, const("i64", event.bytes)])

    def functions(self) -> Sequence[Builder]:
        return [_touch(verb) for verb in _VERBS]


def _touch(verb: str) -> Builder:
    params = [("ptr", "warp"), ("i32", "site"), ("i64", "offset"), ("i32", "me"), ("i64", "bytes")]
    b = function(f"{_TOUCH}.{verb}", "void", params)
    board = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BOARD)
    head = {at: b.load("ptr", b.offset(board, at), align=8) for at in (_WRITERS, _READERS, _MARKS, _WANTED)}
    wanted = b.load("i8", b.offset(head[_WANTED], allocation_at(b, b.param("offset"))), align=1)
    with when(b, b.icmp("eq", wanted, const("i8", 0))):
        b.ret()
    site = b.op("urem", b.param("site"), const("i32", _SITES))
    mark = b.op("shl", const("i32", 1), site)
    with count_range(b, b.param("bytes")) as byte:
        at = b.op("shl", b.op("add", b.param("offset"), byte), const("i64", 2))
        writer, reader, marks = (b.offset(head[place], at) for place in (_WRITERS, _READERS, _MARKS))
        wrote, read, old = (b.load("i32", place, align=4) for place in (writer, reader, marks))
        met = _meets(b, wrote, atomic=verb == "atomic")
        if verb != "load":
            met = b.op("or", met, _meets(b, read, atomic=False))
        b.store(b.op("or", b.op("or", old, mark), met), marks, align=4)
        if verb == "load":
            b.store(_with_me(b, read), reader, align=4)
        elif verb == "store":
            b.store(b.param("me"), writer, align=4)
        else:
            atomically = b.op("or", _with_me(b, b.op("and", wrote, const("i32", ~_ATOMIC))), const("i32", _ATOMIC))
            plain = b.icmp("sgt", wrote, const("i32", 0))
            b.store(b.select(plain, wrote, atomically), writer, align=4)
    b.ret()
    return b


def _first_of_cta(b: Builder) -> tuple[Value, Value]:
    """The number of the CTA's first thread, and how many thread numbers the CTA has."""
    warp = b.param("warp")
    threads = b.op("mul", get(b, get(b, warp, WARP_WORKER), WORKER_WARP_COUNT), const("i32", LANES))
    return b.op("sub", thread_base(b), b.op("mul", get(b, warp, WARP_ID), const("i32", LANES))), threads


def _with_me(b: Builder, entry: Value) -> Value:
    """`entry` with this thread added."""
    me = b.param("me")
    first, threads = _first_of_cta(b)
    alone = b.op("or", b.icmp("eq", entry, const("i32", 0)), b.icmp("eq", entry, me))
    who = b.op("and", entry, const("i32", _WHO))
    here = b.icmp("ult", b.op("sub", who, first), threads)
    several = b.op("or", first, const("i32", _SEVERAL))
    return b.select(alone, me, b.select(here, several, const("i32", _WHO)))


def _meets(b: Builder, entry: Value, *, atomic: bool) -> Value:
    """The mark of a conflict with the access in `entry`; 0 if there is none, it is this thread's or both are atomic."""
    foreign = b.icmp("ne", b.op("and", entry, const("i32", ~_ATOMIC)), b.param("me"))
    foreign = b.op("and", foreign, b.icmp("ne", entry, const("i32", 0)))
    if atomic:
        foreign = b.op("and", foreign, b.icmp("sge", entry, const("i32", 0)))
    first, threads = _first_of_cta(b)
    who = b.op("and", entry, const("i32", _WHO))
    several = b.icmp("ne", b.op("and", entry, const("i32", _SEVERAL)), const("i32", 0))
    in_warp = b.icmp("ult", b.op("sub", who, thread_base(b)), const("i32", LANES))
    in_cta = b.icmp("ult", b.op("sub", who, first), threads)
    mark = b.select(in_warp, const("i32", IN_WARP), const("i32", IN_CTA))
    mark = b.select(several, const("i32", AMONG_SEVERAL), mark)
    mark = b.select(in_cta, mark, const("i32", BETWEEN_CTAS))
    return b.select(foreign, mark, const("i32", 0))
