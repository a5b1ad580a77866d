"""Loads through the read-only cache (ld.global.nc: `__ldg`, `const T* __restrict__`) of bytes that the launch writes.

That cache is not kept coherent while a kernel runs: such a load may return the value before a write of the same
launch, whatever fences and barriers are in between. The virtual GPU has no such cache and would show the new value.

This is a separate run, for kernels that have such loads and buffers that were both read and written. Every byte of
these has three words: who wrote it last (instruction), who read it by such a load (instruction, thread). A load after
a write is wrong, and so is a write by another thread than the one that has read: the order of the two may be reversed.
A thread that reads its element and then overwrites it is not reported.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.ptx.module import Instruction
from weft.vm.context import WARP_WORKER, WORKER_BOARD
from weft.vm.ir import Builder, Value, const
from weft.vm.memory import GlobalMemory
from weft.vm.runtime.shape import count_range, each_lane, function, get, symbol, when
from weft.vm.runtime.watch import Access, Instrumentation

from .global_race import allocation_at, in_global, thread_base
from .shared_probe import source_digest

_HEAD_BYTES = 64
_WRITERS, _READERS, _WHO, _WANTED, _SITES, _FOUND, _SITE_COUNT = 0, 8, 16, 24, 32, 40, 48
"""Places in the head: host addresses, and the length of the table of sites."""
_SEVERAL = 1 << 30
"""Added to the number of the first thread that read a byte if others read it too."""
_TOUCH, _REPORT = "probe.read_only.touch", "probe.read_only.report"
FOUND = np.dtype([("count", "u4"), ("store", "u4"), ("offset", "u8"), ("thread", "i4"), ("spare", "u4", 3)])
"""Per load instruction: the number of bytes; for the first one its store, offset in the arena, reading thread + 1."""


@dataclass(frozen=True)
class WrittenRead:
    """A read-only load of bytes that the same launch stores."""

    load: int
    store: int
    """Sites."""
    offset: int
    thread: int
    """One more than its number in the grid, counted in full warps."""
    count: int
    """Bytes, each as often as it was read or stored so."""


def read_only_sites(instructions: Iterable[Instruction]) -> frozenset[int]:
    """Return the sites of the loads through the read-only cache."""
    return frozenset(ins.line for ins in instructions if any(access.read_only for access in ins.facts.accesses))


class ReadOnlyLoads(Instrumentation):
    """Watches the bytes of some allocations, given by number; `sites` are the loads in question."""

    def __init__(self, allocations: Sequence[int], sites: frozenset[int]) -> None:
        self.allocations = tuple(allocations)
        self.key = f"read-only-{source_digest()}"
        self.sites = np.zeros(max(sites) + 1, bool)
        self.sites[list(sites)] = True
        self.found = np.zeros(len(self.sites), FOUND)

    def board_bytes(self, memory: GlobalMemory) -> int:
        return _HEAD_BYTES + len(memory.extents) + 64 + 12 * memory.used

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        board[_HEAD_BYTES + np.array(self.allocations)] = 1
        words = -(-(_HEAD_BYTES + len(memory.extents)) // 64) * 64
        head = board[:_HEAD_BYTES].view(np.uint64)
        for number, place in enumerate((_WRITERS, _READERS, _WHO)):
            head[place // 8] = board.ctypes.data + words + 4 * memory.used * number
        head[_WANTED // 8] = board.ctypes.data + _HEAD_BYTES
        head[_SITES // 8], head[_FOUND // 8] = self.sites.ctypes.data, self.found.ctypes.data
        head[_SITE_COUNT // 8] = len(self.sites)

    def read(self) -> list[WrittenRead]:
        """Return what was found, by the site of the load."""
        return [
            WrittenRead(site, *(int(self.found[site][name]) for name in ("store", "offset", "thread", "count")))
            for site in np.flatnonzero(self.found["count"]).tolist()
        ]

    def access(self, b: Builder, event: Access) -> None:
        touch = in_global(b, event)
        if touch is None:
            return
        verb, lanes = ("store" if event.store or event.atomic else "load"), touch.lanes
        if verb == "load":
            board = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BOARD)
            known = b.icmp("ult", b.param("site"), b.load("i32", b.offset(board, _SITE_COUNT), align=4))
            place = b.select(known, b.cast("zext", b.param("site"), "i64"), const("i64", 0))
            flag = b.load("i8", b.offset(b.load("ptr", b.offset(board, _SITES), align=8), place), align=1)
            lanes = b.select(b.op("and", known, b.icmp("ne", flag, const("i8", 0))), lanes, const("i32", 0))
        base = thread_base(b)
        with each_lane(b, lanes) as lane:
            args = [b.param("warp"), b.param("site"), b.extract(touch.offsets, lane), b.op("add", base, lane)]
            b.call(symbol(f"{_TOUCH}.{verb}"), "void", [*args, const("i64", event.bytes)])

    def functions(self) -> Sequence[Builder]:
        return [_touch("load"), _touch("store"), _report()]


def _table(b: Builder, at: int) -> Value:
    board = get(b, get(b, b.param("warp"), WARP_WORKER), WORKER_BOARD)
    return b.load("ptr", b.offset(board, at), align=8)


def _touch(verb: str) -> Builder:
    params = [("ptr", "warp"), ("i32", "site"), ("i64", "offset"), ("i32", "me"), ("i64", "bytes")]
    b = function(f"{_TOUCH}.{verb}", "void", params)
    site, me = b.param("site"), b.param("me")
    wanted = b.load("i8", b.offset(_table(b, _WANTED), allocation_at(b, b.param("offset"))), align=1)
    with when(b, b.icmp("eq", wanted, const("i8", 0))):
        b.ret()
    mark = b.op("add", site, const("i32", 1))
    with count_range(b, b.param("bytes")) as byte:
        place = b.op("add", b.param("offset"), byte)
        at = b.op("shl", place, const("i64", 2))
        writer, reader, who = (b.offset(_table(b, table), at) for table in (_WRITERS, _READERS, _WHO))
        wrote, read, whose = (b.load("i32", word, align=4) for word in (writer, reader, who))
        if verb == "load":
            with when(b, b.icmp("ne", wrote, const("i32", 0))):
                _tell(b, site, b.op("sub", wrote, const("i32", 1)), place, me)
            b.store(mark, reader, align=4)
            alone = b.op("or", b.icmp("eq", whose, const("i32", 0)), b.icmp("eq", whose, me))
            b.store(b.select(alone, me, b.op("or", whose, const("i32", _SEVERAL))), who, align=4)
        else:
            foreign = b.op("and", b.icmp("ne", read, const("i32", 0)), b.icmp("ne", whose, me))
            with when(b, foreign):
                first = b.op("and", whose, const("i32", _SEVERAL - 1))
                _tell(b, b.op("sub", read, const("i32", 1)), site, place, first)
            b.store(mark, writer, align=4)
    b.ret()
    return b


def _tell(b: Builder, load: Value, store: Value, place: Value, thread: Value) -> None:
    b.call(symbol(_REPORT), "void", [b.param("warp"), load, store, place, thread])


def _report() -> Builder:
    params = [("ptr", "warp"), ("i32", "load"), ("i32", "store"), ("i64", "offset"), ("i32", "thread")]
    b = function(_REPORT, "void", params)
    entry = b.op("mul", b.cast("zext", b.param("load"), "i64"), const("i64", FOUND.itemsize))
    place = b.offset(_table(b, _FOUND), entry)
    count = b.load("i32", place, align=4)
    b.store(b.op("add", count, const("i32", 1)), place, align=4)
    with when(b, b.icmp("eq", count, const("i32", 0))):
        for name, value in (("store", "store"), ("offset", "offset"), ("thread", "thread")):
            fields = FOUND.fields
            assert fields is not None
            b.store(b.param(value), b.offset(place, fields[name][1]), align=4)
    b.ret()
    return b
