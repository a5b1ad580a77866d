"""The recorder: a log of every memory access and every synchronisation of some CTAs, in the order they happen.

The log is one record per event. It is made by running CTAs again, so it may be slow, but it is complete: addresses
and stored values of all lanes, which lanes reach which barrier, which lanes a bar.warp.sync joins, copies, their
groups, who waits for them and which mbarrier they arrive at. `clocks.py` and `happens_before.py` interpret it. A warp
that waits for a value repeats one load: of repetitions with no other event in between, the first two are recorded.
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from weft.vm.context import WARP_ID, WARP_WORKER, WORKER_BOARD, WORKER_CTA
from weft.vm.ir import LANES, Builder, Value, const, vec
from weft.vm.memory import GLOBAL_BASE, SHARED_BASE, SHARED_START, GlobalMemory
from weft.vm.runtime.access import parse_name
from weft.vm.runtime.shape import PREFIX, Variable, bits, function, get, symbol, when
from weft.vm.runtime.watch import Access, BulkCopy, Instrumentation

from .shared_probe import source_digest

RECORD = np.dtype(
    [
        ("what", "u4"), ("site", "i4"), ("warp", "u4"), ("lanes", "u4"), ("bytes", "u4"), ("number", "u4"),
        ("element", "u4"), ("cta", "u4"), ("address", "u8", LANES), ("value", "u1", 16 * LANES),
    ]
)  # fmt: skip
"""One event. `value` holds what a store writes, register after register, where `element` (bytes) is not 0."""

_AT = {name: offset for name, (_, offset, *_) in (RECORD.fields or {}).items()}
"""Field → its offset in a record."""
HEAD_BYTES = 64
_COUNT, _CAPACITY, _CTAS = 0, 8, 16
_ADD = "probe.record.add"
NULL = Value("ptr", "null")


class What(IntEnum):
    """Kinds of events."""

    LOAD, STORE, ATOMIC, EXCHANGE, COPY, TILE, ARRIVE, COMPLETE, WARP_SYNC, FENCE, GROUP, WAIT, ATTACH = range(13)
    BULK, LANDED, BULK_GROUP, BULK_WAIT, PRODUCT_GROUP, PRODUCT_WAIT, PROXY_FENCE = range(13, 20)
    MAP, MAP_RELEASE, MAP_ACQUIRE = range(20, 23)


PHASE_AT = 24
"""In `number` of LANDED: from this bit on the phase of the mbarrier, below it the mbarrier's shared address."""
_QUEUES = {"bulk": (What.BULK_GROUP, What.BULK_WAIT), "wgmma": (What.PRODUCT_GROUP, What.PRODUCT_WAIT)}


class Recorder(Instrumentation):
    """Writes the log of the CTAs whose flag is set in `ctas`; beyond `capacity` records only counts them."""

    def __init__(self, ctas: npt.NDArray[np.bool_], capacity: int) -> None:
        self.ctas, self.capacity = ctas, capacity
        self.key = f"record-{source_digest()}"

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

    # -- events --------------------------------------------------------------------------------------------------

    def access(self, b: Builder, event: Access) -> None:
        if event.space == "local" or event.copied:  # waits and arrivals show when a copy is complete
            return
        what = What.STORE if event.store else What.LOAD
        if event.atomic:
            what = What.EXCHANGE if event.store else What.ATOMIC
        value, element = NULL, 0
        if what is What.STORE and b.name.startswith(f"{PREFIX}st."):
            value, element = b.param("data"), parse_name(b.name.removeprefix(PREFIX)).bits // 8
            if value.ty != "ptr":
                slot = b.alloca(value.ty)
                b.store(value, slot, align=64)
                value = slot
        if event.words is not None:
            value, element = event.words, 8
        with when(b, b.icmp("ne", event.lanes, const("i32", 0))):
            _add(b, what, _generic(b, event), event.lanes, size=event.bytes, value=value, element=element)

    def copy(self, b: Builder, event: Access) -> None:
        with when(b, b.icmp("ne", event.lanes, const("i32", 0))):
            _add(b, What.COPY, _generic(b, event), event.lanes, size=event.bytes)

    def copy_group(self, b: Builder, lanes: Value) -> None:
        _add(b, What.GROUP, None, lanes, site=const("i32", 0))

    def copy_wait(self, b: Builder, pending: Value, lanes: Value) -> None:
        _add(b, What.WAIT, None, lanes, number=pending)

    def copy_arrival(self, b: Builder, offsets: Value, lanes: Value) -> None:
        event = Access(False, "shared", 8, offsets, lanes, contiguous=False)
        _add(b, What.ATTACH, _generic(b, event), lanes)

    def tile_rows(self, b: Builder, offsets: Value, lanes: Value, rows: int, used: int = 16) -> None:
        event = Access(False, "shared", 16, offsets, lanes, contiguous=False)
        with when(b, b.icmp("ne", lanes, const("i32", 0))):
            _add(b, What.TILE, _generic(b, event), lanes, size=16)

    def arrive(self, b: Builder, number: Value, lanes: Value, waits: Value) -> None:
        _add(b, What.ARRIVE, None, lanes, size=waits, number=number)

    def complete(self, b: Builder, worker: Value, number: Value, everyone: Value) -> None:
        args = [NULL, worker, const("i32", What.COMPLETE), const("i32", 0), const("i32", 0)]
        args += [b.cast("zext", everyone, "i32"), number, const("i32", 0)]
        b.call(symbol(_ADD), "void", [*args, const(vec("i64"), 0), NULL])

    def warp_sync(self, b: Builder, lanes: Value) -> None:
        _add(b, What.WARP_SYNC, None, lanes)

    def fence(self, b: Builder, lanes: Value) -> None:
        _add(b, What.FENCE, None, lanes)

    def bulk(self, b: Builder, copy: BulkCopy) -> None:
        if copy.map is not None:
            _add(b, What.MAP, b.splat(copy.map), copy.lanes)
        _add(b, What.BULK, _near(b, copy), copy.lanes, size=copy.bytes, number=copy.mbarrier)

    def bulk_landed(self, b: Builder, copy: BulkCopy) -> None:
        assert copy.phase is not None
        number = b.op("or", copy.mbarrier, b.op("shl", copy.phase, const("i32", PHASE_AT)))
        _add(b, What.LANDED, _near(b, copy), copy.lanes, size=copy.bytes, number=number)

    def agent_group(self, b: Builder, queue: str, lanes: Value) -> None:
        _add(b, _QUEUES[queue][0], None, lanes)

    def agent_wait(self, b: Builder, queue: str, pending: Value, lanes: Value) -> None:
        _add(b, _QUEUES[queue][1], None, lanes, number=pending, site=const("i32", 0))

    def proxy_fence(self, b: Builder, lanes: Value) -> None:
        _add(b, What.PROXY_FENCE, None, lanes)

    def map_release(self, b: Builder, lanes: Value) -> None:
        _add(b, What.MAP_RELEASE, None, lanes)

    def map_acquire(self, b: Builder, addresses: Value, lanes: Value) -> None:
        _add(b, What.MAP_ACQUIRE, addresses, lanes)

    def functions(self) -> list[Builder]:
        return [_append()]


def _near(b: Builder, copy: BulkCopy) -> Value:
    return b.splat(b.op("add", b.cast("zext", copy.near, "i64"), const("i64", SHARED_BASE)))


def _generic(b: Builder, event: Access) -> Value:
    """Addresses in the generic space, so that one number gives state space and place."""
    if event.space == "generic":
        return event.offsets
    base = SHARED_BASE + SHARED_START if event.space == "shared" else GLOBAL_BASE
    return b.op("add", b.cast("zext", event.offsets, vec("i64")), const(vec("i64"), base))


def _add(
    b: Builder,
    what: What,
    addresses: Value | None,
    lanes: Value,
    *,
    size: int | Value = 0,
    number: Value | None = None,
    site: Value | None = None,
    value: Value = NULL,
    element: int = 0,
) -> None:
    warp = b.param("warp")
    size = const("i32", size) if isinstance(size, int) else size
    args = [warp, get(b, warp, WARP_WORKER), const("i32", what), site or b.param("site"), lanes, size]
    args += [number or const("i32", 0), const("i32", element), addresses or const(vec("i64"), 0), value]
    b.call(symbol(_ADD), "void", args)


def _repeats(b: Builder, log: Value, count: Value, cta: Value) -> Value:
    """i1: the last two records are already this load: a warp waits for a value, and nothing happened meanwhile.

    The second stays, because it shows that the warp waits (`clocks.py`); more would add nothing. A record with a value
    (the word of an mbarrier) is never left out.
    """
    same = Variable(b, const("i1", 0))
    plain = b.op("and", b.icmp("eq", b.param("what"), const("i32", What.LOAD)), _is_zero(b, b.param("element")))
    inside = b.icmp("ule", count, b.load("i64", b.offset(log, _CAPACITY), align=8))
    with when(b, b.op("and", b.op("and", plain, inside), b.icmp("uge", count, const("i64", 2)))):
        own = [(name, b.param(name)) for name in ("what", "site", "lanes", "number", "element")]
        own += [("bytes", b.param("size")), ("warp", get(b, b.param("warp"), WARP_ID)), ("cta", cta)]
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


def _append() -> Builder:
    words = ("what", "site", "lanes", "size", "number", "element")
    params = [("ptr", "warp"), ("ptr", "worker"), *(("i32", name) for name in words)]
    b = function(_ADD, "void", [*params, (vec("i64"), "address"), ("ptr", "value")])
    # The recorder is never combined with other probes: it need not share the board.
    log, cta = get(b, b.param("worker"), WORKER_BOARD), get(b, b.param("worker"), WORKER_CTA)
    flags = b.load("ptr", b.offset(log, _CTAS), align=8)
    wanted = b.load("i8", b.offset(flags, b.cast("zext", cta, "i64")), align=1)
    with when(b, b.icmp("eq", wanted, const("i8", 0))):
        b.ret()
    count = b.load("i64", b.offset(log, _COUNT), align=8)
    with when(b, _repeats(b, log, count, cta), likely=False):
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
    with when(b, b.icmp("ne", b.param("warp"), NULL)):
        put("warp", get(b, b.param("warp"), WARP_ID))
    with when(b, b.icmp("ne", b.param("element"), const("i32", 0))):
        size = b.op("mul", b.cast("zext", b.param("size"), "i64"), const("i64", LANES))
        to = b.offset(place, _AT["value"])
        args = [to, b.param("value"), size, const("i1", 0)]
        b.intrinsic("memcpy", "void", args, overloads=["ptr", "ptr", "i64"])
    b.ret()
    return b
