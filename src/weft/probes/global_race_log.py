"""racecheck, third pass over global memory: the log that orders the accesses to chosen bytes.

It contains the accesses to a chosen byte of global memory, and all by which threads synchronise (atomics, volatile,
acquire and release accesses); and barriers and fences, like any log. A warp that waits reads the same place again and
again: after the second time a read is recorded only when the value has changed, as the others add nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from weft.ptx.module import Instruction
from weft.vm.context import (
    WARP_GLOBAL,
    WARP_HOME,
    WARP_ID,
    WARP_WORKER,
    WORKER_BOARD,
    WORKER_CTA,
    WORKER_WARP_COUNT,
)
from weft.vm.ir import Builder, Value, const, vec
from weft.vm.memory import GlobalMemory
from weft.vm.runtime.shape import Variable, each_lane, get, when
from weft.vm.runtime.watch import Access, BulkCopy

from .global_race import GlobalTouch, in_global
from .record import Recorder
from .semantics import is_strong, is_volatile
from .shadow import any_of
from .shared_probe import source_digest

_CHOSEN, _STRONG, _TAKES_PART, _ASKED = 24, 32, 40, 48
"""Places in the head of the log: host addresses."""

ASKED = np.dtype([("site", "u4"), ("times", "u4"), ("lanes", "u4"), ("spare", "u4"), ("digest", "u8")])
"""Per warp: the last access in the log, how often it was repeated, and a digest of its places and their values."""
_TWICE = 2
_PRIME = 0x9E3779B97F4A7C15


class GlobalRecorder(Recorder):
    """Writes the log of the CTAs whose flag is set in `ctas`, for the bytes whose flag is set in `chosen`."""

    def __init__(
        self,
        ctas: npt.NDArray[np.bool_],
        capacity: int,
        warps: int,
        *,
        chosen: npt.NDArray[np.bool_],
        strong: npt.NDArray[np.bool_],
    ) -> None:
        super().__init__(ctas, capacity)
        self.key = f"global-record-{source_digest()}"
        self.chosen, self.strong = chosen, strong
        self.takes_part = np.zeros(len(ctas), bool)
        """Flags of the CTAs that access a chosen byte, or synchronise through global memory."""
        self.asked = np.zeros(len(ctas) * warps, ASKED)

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        super().prepare_board(board, memory)
        places = (_CHOSEN, _STRONG, _TAKES_PART, _ASKED)
        for at, table in zip(places, (self.chosen, self.strong, self.takes_part, self.asked), strict=True):
            board[at : at + 8].view(np.uint64)[0] = table.ctypes.data

    def read(self) -> tuple[npt.NDArray[np.void], int]:
        read = super().read()
        del self.chosen, self.asked
        return read

    def access(self, b: Builder, event: Access) -> None:
        worker = get(b, b.param("warp"), WARP_WORKER)
        board = get(b, worker, WORKER_BOARD)
        flag = b.offset(b.load("ptr", b.offset(board, _STRONG), align=8), b.cast("zext", b.param("site"), "i64"))
        strong = b.icmp("ne", b.load("i8", flag, align=1), const("i8", 0))
        lanes = b.select(strong, event.lanes, const("i32", 0))
        touch = in_global(b, event)
        if touch is not None:
            near = _chosen_lanes(b, board, event, touch)
            with when(b, b.icmp("ne", b.op("or", near, b.op("and", touch.lanes, lanes)), const("i32", 0))):
                table = b.load("ptr", b.offset(board, _TAKES_PART), align=8)
                cta = b.cast("zext", get(b, worker, WORKER_CTA), "i64")
                b.store(const("i8", 1), b.offset(table, cta), align=1)
            lanes = b.op("or", lanes, near)
        if event.space == "global" and (event.atomic or not event.store):
            lanes = _unless_asked(b, event, lanes, strong)
            super().access(b, replace(event, lanes=lanes))
            return
        with when(b, b.icmp("ne", lanes, const("i32", 0))):
            _forget(b)
        super().access(b, replace(event, lanes=lanes))

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        _forget(b)
        super().arrive(b, number, lanes, waits)

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        _forget(b)
        super().warp_sync(b, lanes)

    def fence(self, b: Builder, lanes: Value) -> None:
        _forget(b)
        super().fence(b, lanes)

    def copy(self, b: Builder, event: Access) -> None:
        """Ignored: shared memory is not part of this log; the load of the copy's source is."""

    def copy_group(self, b: Builder, lanes: Value) -> None:
        """Ignored, as `copy`."""

    def copy_wait(self, b: Builder, pending: Value, lanes: Value) -> None:
        """Ignored, as `copy`."""

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        """Ignored, as `copy`."""

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        """Ignored: agents are judged in shared memory only, and their completion orders nothing else."""

    def bulk_landed(self, b: Builder, copy: BulkCopy) -> None:
        """Ignored, as `bulk`."""

    def agent_group(self, b: Builder, queue: str, lanes: Value) -> None:
        """Ignored, as `bulk`."""

    def agent_wait(self, b: Builder, queue: str, pending: Value, lanes: Value) -> None:
        """Ignored, as `bulk`."""

    def proxy_fence(self, b: Builder, lanes: Value) -> None:
        """Ignored, as `bulk`."""

    def map_release(self, b: Builder, lanes: Value) -> None:
        """Ignored, as `bulk`."""

    def map_acquire(self, b: Builder, addresses: Value, lanes: Value) -> None:
        """Ignored, as `bulk`."""


def _chosen_lanes(b: Builder, board: Value, event: Access, touch: GlobalTouch) -> Value:
    """i32 mask of the lanes that access a chosen byte."""
    table = b.load("ptr", b.offset(board, _CHOSEN), align=8)
    near = Variable(b, const("i32", 0))
    with each_lane(b, touch.lanes) as lane:
        flags = b.load(vec("i8", event.bytes), b.offset(table, b.extract(touch.offsets, lane)), align=1)
        on = b.icmp("ne", flags, const(flags.ty, 0))
        here = b.cast("zext", on if event.bytes == 1 else any_of(b, on), "i32")
        near.set(b.op("or", near.get(), b.op("shl", here, lane)))
    return near.get()


def _asked_by(b: Builder) -> Value:
    """The warp's entry in the table."""
    warp = b.param("warp")
    worker = get(b, warp, WARP_HOME)
    first = b.op("mul", get(b, worker, WORKER_CTA), get(b, worker, WORKER_WARP_COUNT))
    number = b.cast("zext", b.op("add", first, get(b, warp, WARP_ID)), "i64")
    table = b.load("ptr", b.offset(get(b, worker, WORKER_BOARD), _ASKED), align=8)
    return b.offset(table, b.op("mul", number, const("i64", ASKED.itemsize)))


def _forget(b: Builder) -> None:
    b.store(const("i32", 0), b.offset(_asked_by(b), 4), align=4)


def _unless_asked(b: Builder, event: Access, lanes: Value, strong: Value) -> Value:
    """`lanes`, or none if the warp has made this access twice already and the values have not changed."""
    answer = Variable(b, lanes)
    with when(b, b.icmp("ne", lanes, const("i32", 0))):
        entry = _asked_by(b)
        old = [b.load("i32", b.offset(entry, at), align=4) for at in (0, 4, 8)]
        memory, word = get(b, b.param("warp"), WARP_GLOBAL), f"i{8 * min(event.bytes, 8)}"
        digest = Variable(b, const("i64", 0))
        with each_lane(b, lanes) as lane:
            offset = b.extract(event.offsets, lane)
            value = b.load(word, b.offset(memory, offset), align=1)
            value = value if word == "i64" else b.cast("zext", value, "i64")
            mixed = b.op("mul", b.op("xor", value, b.op("shl", offset, const("i64", 20))), const("i64", _PRIME))
            digest.set(b.op("mul", b.op("xor", digest.get(), mixed), const("i64", _PRIME)))
        same = b.icmp("eq", b.load("i64", b.offset(entry, 16), align=8), digest.get())
        for now, before in ((b.param("site"), old[0]), (lanes, old[2])):
            same = b.op("and", same, b.icmp("eq", now, before))
        same = b.op("and", same, b.icmp("ne", old[1], const("i32", 0)))
        times = b.select(same, b.op("add", old[1], const("i32", 1)), const("i32", 1))
        for at, value in ((0, b.param("site")), (4, times), (8, lanes), (16, digest.get())):
            b.store(value, b.offset(entry, at), align=4)
        again = b.op("and", strong, b.icmp("ugt", times, const("i32", _TWICE)))
        answer.set(b.select(again, const("i32", 0), lanes))
    return answer.get()


def strong_sites(instructions: Iterable[Instruction]) -> npt.NDArray[np.bool_]:
    """Return a flag per site: whether threads may synchronise by an instruction there."""
    known = list(instructions)
    flags = np.zeros(max((ins.line for ins in known), default=0) + 1, bool)
    for ins in known:
        flags[ins.line] |= is_strong(ins) or is_volatile(ins)
    return flags
