"""The recorder: a log of every memory access and every synchronisation of some CTAs, in the order they happen.

The log is one record per event. It is made by running CTAs again, so it may be slow, but it is complete: addresses
and stored values of all lanes, which lanes reach which barrier, which lanes a bar.warp.sync joins, copies, their
groups, who waits for them and which mbarrier they arrive at. `clocks.py` and `happens_before.py` interpret it. A warp
that waits for a value repeats one load: of repetitions with no other event in between, the first two are recorded.
"""

import numpy as np
import numpy.typing as npt

from weft.vm.context import WARP_HOME, WARP_ID, WORKER_BOARD, WORKER_CTA
from weft.vm.ir import LANES, Builder, Value, const, vec
from weft.vm.memory import GlobalMemory
from weft.vm.runtime.shape import Variable, bits, get, when

from .events import NULL, Events, What

RECORD = np.dtype(
    [
        ("what", "u4"), ("site", "i4"), ("warp", "u4"), ("lanes", "u4"), ("bytes", "u4"), ("number", "u4"),
        ("element", "u4"), ("cta", "u4"), ("owner", "u4"), ("address", "u8", LANES), ("value", "u1", 16 * LANES),
    ]
)  # fmt: skip
"""One event. `cta` is that of the thread, `owner` the one whose shared memory it accesses: perhaps another one of the
cluster. `value` holds what a store writes, register after register, where `element` (bytes) is not 0."""

_AT = {name: offset for name, (_, offset, *_) in (RECORD.fields or {}).items()}
"""Field → its offset in a record."""
HEAD_BYTES = 64
_COUNT, _CAPACITY, _CTAS = 0, 8, 16


class Recorder(Events):
    """Writes the log of the CTAs whose flag is set in `ctas`; beyond `capacity` records only counts them."""

    name = "record"
    add = "probe.record.add"
    sees_peers = True

    def __init__(self, ctas: npt.NDArray[np.bool_], capacity: int) -> None:
        super().__init__()
        self.ctas, self.capacity = ctas, capacity

    def board_bytes(self, memory: GlobalMemory) -> int:
        return HEAD_BYTES + self.capacity * RECORD.itemsize

    def prepare_board(self, board: npt.NDArray[np.uint8], memory: GlobalMemory) -> None:
        board[_CAPACITY : _CAPACITY + 8].view(np.uint64)[0] = self.capacity
        board[_CTAS : _CTAS + 8].view(np.uint64)[0] = self.ctas.ctypes.data
        self.board = board

    def read(self) -> tuple[npt.NDArray[np.void], int]:
        """Return the records of the run, once, and how many there would be without the limit.

        The log is dropped: the functions that were compiled for this watcher keep it for the whole process.
        """
        board = self.board
        del self.board
        count = int(board[_COUNT : _COUNT + 8].view(np.uint64)[0])
        kept = min(count, self.capacity)
        return board[HEAD_BYTES : HEAD_BYTES + kept * RECORD.itemsize].view(RECORD), count

    def functions(self) -> list[Builder]:
        return [_append(self.function_for())]


def _repeats(b: Builder, log: Value, count: Value, cta: Value, owner: Value) -> Value:
    """i1: the last two records are already this load: a warp waits for a value, and nothing happened meanwhile.

    The second stays, because it shows that the warp waits (`clocks.py`); more would add nothing. A record with a value
    (the word of an mbarrier) is never left out.
    """
    same = Variable(b, const("i1", 0))
    plain = b.op("and", b.icmp("eq", b.param("what"), const("i32", What.LOAD)), _is_zero(b, b.param("element")))
    inside = b.icmp("ule", count, b.load("i64", b.offset(log, _CAPACITY), align=8))
    with when(b, b.op("and", b.op("and", plain, inside), b.icmp("uge", count, const("i64", 2)))):
        own = [(name, b.param(name)) for name in ("what", "site", "lanes", "number", "element")]
        own += [("bytes", b.param("size")), ("warp", get(b, b.param("warp"), WARP_ID)), ("cta", cta), ("owner", owner)]
        differ = const("i32", 0)
        for back in (1, 2):
            index = b.op("sub", count, const("i64", back))
            place = b.offset(b.offset(log, HEAD_BYTES), b.op("mul", index, const("i64", RECORD.itemsize)))
            for name, value in own:
                known = b.load("i32", b.offset(place, _AT[name]), align=4)
                differ = b.op("or", differ, b.op("xor", known, value))
            known = b.load(vec("i64"), b.offset(place, _AT["address"]), align=4)
            differ = b.op("or", differ, bits(b, b.icmp("ne", known, b.param("address"))))
        same.set(_is_zero(b, differ))
    return same.get()


def _is_zero(b: Builder, value: Value) -> Value:
    return b.icmp("eq", value, const("i32", 0))


def _append(b: Builder) -> Builder:
    # No other probe of the run has a board.
    log, owner = get(b, b.param("worker"), WORKER_BOARD), get(b, b.param("worker"), WORKER_CTA)
    acting = Variable(b, owner)
    with when(b, b.icmp("ne", b.param("warp"), NULL)):
        acting.set(get(b, get(b, b.param("warp"), WARP_HOME), WORKER_CTA))
    cta = acting.get()
    flags = b.load("ptr", b.offset(log, _CTAS), align=8)
    wanted = b.load("i8", b.offset(flags, b.cast("zext", cta, "i64")), align=1)
    with when(b, b.icmp("eq", wanted, const("i8", 0))):
        b.ret()
    count = b.load("i64", b.offset(log, _COUNT), align=8)
    with when(b, _repeats(b, log, count, cta, owner), likely=False):
        b.ret()
    b.store(b.op("add", count, const("i64", 1)), b.offset(log, _COUNT), align=8)
    with when(b, b.icmp("uge", count, b.load("i64", b.offset(log, _CAPACITY), align=8))):
        b.ret()
    place = b.offset(b.offset(log, HEAD_BYTES), b.op("mul", count, const("i64", RECORD.itemsize)))

    def put(name: str, value: Value) -> None:
        b.store(value, b.offset(place, _AT[name]), align=4)

    for name, given in (
        ("what", "what"),
        ("site", "site"),
        ("lanes", "lanes"),
        ("bytes", "size"),
        ("number", "number"),
        ("element", "element"),
        ("address", "address"),
    ):
        put(name, b.param(given))
    put("cta", cta)
    put("owner", owner)
    with when(b, b.icmp("ne", b.param("warp"), NULL)):
        put("warp", get(b, b.param("warp"), WARP_ID))
    with when(b, b.icmp("ne", b.param("element"), const("i32", 0))):
        size = b.op("mul", b.cast("zext", b.param("size"), "i64"), const("i64", LANES))
        to = b.offset(place, _AT["value"])
        args = [to, b.param("value"), size, const("i1", 0)]
        b.intrinsic("memcpy", "void", args, overloads=["ptr", "ptr", "i64"])
    b.ret()
    return b
