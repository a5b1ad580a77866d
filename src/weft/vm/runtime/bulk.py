"""Bulk and tensor copies: queued at the instruction, carried out as late as the program allows.

    void bulk.load               (warp, <32 x i32> near, <32 x i64> far, <32 x i32> bytes, <32 x i32> mbarrier,
                                  i32 mask, i32 site)
    void bulk.store              (warp, <32 x i32> near, <32 x i64> far, <32 x i32> bytes, i32 mask, i32 site)
    void bulk.{add, min, …}.TYPE  the same, a reduction
    void bulk.tile.load.{1 … 5, gather4}
                                 (warp, <32 x i32> near, <32 x i64> map, ptr coordinates, <32 x i32> mbarrier,
                                  i32 mask, i32 site)
    void bulk.tile.{store, add, …}.{1 … 5}
                                 (warp, <32 x i32> near, <32 x i64> map, ptr coordinates, i32 mask, i32 site)
    void bulk.commit             (warp, i32 mask, i32 site)
    void bulk.wait               (warp, i32 pending, i32 mask)
    i32  bulk.deliver            (warp, i32 mbarrier)   carry out a load that signals the mbarrier; 0 if there is none
    i32  bulk.pending            (warp, i32 mbarrier)   the site of such a load; 0 if there is none
    void bulk.landed             (warp, ptr entry, i32 lane, i32 site)     tells watchers that a load has arrived
    void bulk.finish             (worker)               the CTA ends
`coordinates` has a row of 32 x i32 for each dimension; gather4: the column, then four rows. The queue belongs to the
CTA: an array of entries of ENTRY_BYTES, the oldest first. Every copy is a box of up to five dimensions; a run of bytes
is one of one dimension. Addresses and the tensor map are read and checked at the instruction (`runtime/bulk_issue.py`);
bytes move when a thread tests the mbarrier (loads), when the thread waits for its group, or when the CTA ends.
"""

from weft.core.errors import Unsupported

from ..context import (
    BULK_SHUFFLED,
    EARLY_PHASE,
    NOT_AWAITED,
    WARP_BULK_GROUP,
    WARP_BYTES,
    WARP_ID,
    WARP_SHARED,
    WARP_WORKER,
    WORKER_BULK_COUNT,
    WORKER_BULK_SEED,
    WORKER_BULK_WHEN,
    WORKER_WARPS,
    Field,
)
from ..ir import Builder, Value, const, vec
from ..mbarrier_word import PHASE_MASK, PHASE_SHIFT
from .bulk_issue import build_issue
from .bulk_move import build_move
from .bulk_record import (
    ENTRY_BYTES,
    ENTRY_GROUP,
    ENTRY_LANE,
    ENTRY_MBARRIER,
    ENTRY_MOVE,
    ENTRY_ORIGIN,
    ENTRY_SHARED,
    ENTRY_SITE,
    ENTRY_SIZE,
    ENTRY_STATE,
    ENTRY_WARP,
    NO_MBARRIER,
    entry_at,
)
from .shape import Variable, count_range, function, get, put, symbol, unbits, when
from .watch import BulkCopy, Instrumentation

_COMPACT = "bulk.compact"
_PERFORM = "bulk.perform"


def build_bulk(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    match name:
        case "bulk.commit":
            return [_commit(name, watch)]
        case "bulk.wait":
            return [_wait(name, watch)]
        case "bulk.deliver":
            return [_deliver(name, watch)]
        case "bulk.landed":
            return [_landed(name, watch)]
        case "bulk.pending":
            return [_pending(name)]
        case "bulk.finish":
            return [_finish(name)]
        case "bulk.compact":
            return [_compact(name)]
        case "bulk.perform":
            return [_perform(name)]
    if name.startswith("bulk.move."):
        return [build_move(name, watch)]
    if name.startswith("bulk."):
        return [build_issue(name, watch)]
    raise Unsupported(f"runtime function {name}")


def _commit(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", [("ptr", "warp"), ("i32", "mask"), ("i32", "site")])
    watch.agent_group(b, "bulk", b.param("mask"))
    place = b.offset(b.param("warp"), WARP_BULK_GROUP.at)
    more = b.cast("zext", unbits(b, b.param("mask")), vec("i32"))
    b.store(b.op("add", b.load(vec("i32"), place, align=4), more), place, align=4)
    b.ret()
    return b


def _lane_of(b: Builder, record: Value, field: Field, lane: Value) -> Value:
    """Return one lane's element of a member of a record."""
    at = b.op("shl", b.cast("zext", lane, "i64"), const("i64", 2))
    return b.load("i32", b.offset(b.offset(record, field.at), at), align=4)


def _wait(name: str, watch: Instrumentation) -> Builder:
    """Carry out the stores of `mask` whose group is not among the thread's last `pending` ones."""
    b = function(name, "void", [("ptr", "warp"), ("i32", "pending"), ("i32", "mask")])
    warp = b.param("warp")
    worker = get(b, warp, WARP_WORKER)
    count = get(b, worker, WORKER_BULK_COUNT)
    backwards = _draw(b, worker, const("i32", 2))
    with count_range(b, count) as number:
        mirrored = b.op("sub", b.op("sub", count, const("i32", 1)), number)
        entry = entry_at(b, worker, b.select(b.icmp("ne", backwards, const("i32", 0)), mirrored, number))
        mine = b.icmp("eq", get(b, entry, ENTRY_WARP), get(b, warp, WARP_ID))
        store = b.icmp("eq", get(b, entry, ENTRY_MBARRIER), const("i32", NO_MBARRIER))
        asked = b.icmp("ne", b.op("and", get(b, entry, ENTRY_LANE), b.param("mask")), const("i32", 0))
        lane = b.intrinsic("cttz", "i32", [get(b, entry, ENTRY_LANE), const("i1", 0)])
        limit = b.op("sub", _lane_of(b, warp, WARP_BULK_GROUP, b.op("and", lane, const("i32", 31))), b.param("pending"))
        old = b.icmp("slt", get(b, entry, ENTRY_GROUP), limit)
        waiting = b.icmp("ne", get(b, entry, ENTRY_STATE), const("i32", 0))
        due = b.op("and", b.op("and", mine, store), b.op("and", b.op("and", asked, old), waiting))
        with when(b, due):
            b.call(symbol(_PERFORM), "void", [worker, entry])
    b.call(symbol(_COMPACT), "void", [worker])
    watch.agent_wait(b, "bulk", b.param("pending"), b.param("mask"))
    b.ret()
    return b


def _perform(name: str) -> Builder:
    """Move the bytes of an entry, and mark it as carried out."""
    b = function(name, "void", [("ptr", "worker"), ("ptr", "record")])
    entry = b.param("record")
    warp = _warp_of(b, b.param("worker"), entry)
    put(b, entry, ENTRY_STATE, const("i32", 0))
    args = [warp, entry, get(b, entry, ENTRY_LANE), get(b, entry, ENTRY_SITE)]
    b.call_pointer(get(b, entry, ENTRY_MOVE), "void", args)
    b.ret()
    return b


def _warp_of(b: Builder, worker: Value, entry: Value) -> Value:
    at = b.op("mul", b.cast("zext", get(b, entry, ENTRY_WARP), "i64"), const("i64", WARP_BYTES))
    return b.offset(get(b, worker, WORKER_WARPS), at)


def _compact(name: str) -> Builder:
    """Remove the entries that are carried out."""
    b = function(name, "void", [("ptr", "worker")])
    worker = b.param("worker")
    kept = Variable(b, const("i32", 0))
    with count_range(b, get(b, worker, WORKER_BULK_COUNT)) as number:
        entry = entry_at(b, worker, number)
        with when(b, b.icmp("ne", get(b, entry, ENTRY_STATE), const("i32", 0))):
            to = entry_at(b, worker, kept.get())
            args = [to, entry, const("i64", ENTRY_BYTES), const("i1", 0)]
            b.intrinsic("memmove", "void", args, overloads=["ptr", "ptr", "i64"])
            kept.set(b.op("add", kept.get(), const("i32", 1)))
    put(b, worker, WORKER_BULK_COUNT, kept.get())
    b.ret()
    return b


def _draw(b: Builder, worker: Value, below: Value) -> Value:
    """Return a number below `below` (i32, not 0): 0, or any if copies are carried out in another order."""
    seed = b.op("add", b.op("mul", get(b, worker, WORKER_BULK_SEED), const("i32", 1664525)), const("i32", 1013904223))
    put(b, worker, WORKER_BULK_SEED, seed)
    any_order = b.icmp("eq", get(b, worker, WORKER_BULK_WHEN), const("i32", BULK_SHUFFLED))
    return b.select(any_order, b.op("urem", b.op("lshr", seed, const("i32", 8)), below), const("i32", 0))


def _signals(b: Builder, entry: Value, mbarrier: Value) -> Value:
    waiting = b.icmp("ne", get(b, entry, ENTRY_STATE), const("i32", 0))
    return b.op("and", waiting, b.icmp("eq", get(b, entry, ENTRY_MBARRIER), mbarrier))


def _deliver(name: str, watch: Instrumentation) -> Builder:
    """Carry out one load that signals the mbarrier; its bytes may end the phase, and then no other may be left."""
    b = function(name, "i32", [("ptr", "warp"), ("i32", "mbarrier")])
    worker, mbarrier = get(b, b.param("warp"), WARP_WORKER), b.param("mbarrier")
    count = get(b, worker, WORKER_BULK_COUNT)
    found = Variable(b, const("i32", 0))
    with count_range(b, count) as number:
        here = b.cast("zext", _signals(b, entry_at(b, worker, number), mbarrier), "i32")
        found.set(b.op("add", found.get(), here))
    with when(b, b.icmp("eq", found.get(), const("i32", 0))):
        b.ret(const("i32", 0))
    left = Variable(b, _draw(b, worker, found.get()))
    chosen = Variable(b, const("i32", -1))
    with count_range(b, count) as number:
        here = _signals(b, entry_at(b, worker, number), mbarrier)
        this = b.op("and", here, b.icmp("eq", left.get(), const("i32", 0)))
        with when(b, b.op("and", this, b.icmp("slt", chosen.get(), const("i32", 0)))):
            chosen.set(number)
        left.set(b.op("sub", left.get(), b.cast("zext", here, "i32")))
    entry = entry_at(b, worker, chosen.get())
    b.call(symbol(_PERFORM), "void", [worker, entry])
    warp = _warp_of(b, worker, entry)
    if watch.wants("bulk_landed"):
        b.call(symbol("bulk.landed"), "void", [warp, entry, get(b, entry, ENTRY_LANE), get(b, entry, ENTRY_SITE)])
    args = [warp, mbarrier, get(b, entry, ENTRY_SIZE), get(b, entry, ENTRY_LANE), get(b, entry, ENTRY_SITE)]
    ended = b.call(symbol("mbarrier.landed"), "i32", args)
    b.call(symbol(_COMPACT), "void", [worker])
    with when(b, b.icmp("ne", ended, const("i32", 0))), count_range(b, get(b, worker, WORKER_BULK_COUNT)) as number:
        other = entry_at(b, worker, number)
        with when(b, _signals(b, other, mbarrier), likely=False):
            _report(b, worker, other, EARLY_PHASE)
            b.ret(const("i32", 1))
    b.ret(const("i32", 1))
    return b


def _landed(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", [("ptr", "warp"), ("ptr", "record"), ("i32", "lane"), ("i32", "site")])
    entry, mbarrier = b.param("record"), get(b, b.param("record"), ENTRY_MBARRIER)
    word = b.load("i64", b.offset(get(b, b.param("warp"), WARP_SHARED), b.cast("zext", mbarrier, "i64")), align=8)
    phase = b.op("and", b.op("lshr", word, const("i64", PHASE_SHIFT)), const("i64", PHASE_MASK))
    near, size = get(b, entry, ENTRY_SHARED), get(b, entry, ENTRY_SIZE)
    far = get(b, entry, ENTRY_ORIGIN)
    copy = BulkCopy(near, size, mbarrier, b.param("lane"), loads=True, far=far, phase=b.cast("trunc", phase, "i32"))
    watch.bulk_landed(b, copy)
    b.ret()
    return b


def _report(b: Builder, worker: Value, entry: Value, code: int) -> None:
    args = [_warp_of(b, worker, entry), const("i32", code), get(b, entry, ENTRY_SITE), get(b, entry, ENTRY_LANE)]
    b.call(symbol("report"), "void", [*args, b.cast("zext", get(b, entry, ENTRY_MBARRIER), "i64")])


def _pending(name: str) -> Builder:
    b = function(name, "i32", [("ptr", "warp"), ("i32", "mbarrier")])
    worker = get(b, b.param("warp"), WARP_WORKER)
    with count_range(b, get(b, worker, WORKER_BULK_COUNT)) as number:
        entry = entry_at(b, worker, number)
        with when(b, _signals(b, entry, b.param("mbarrier"))):
            b.ret(get(b, entry, ENTRY_SITE))
    b.ret(const("i32", 0))
    return b


def _finish(name: str) -> Builder:
    """Carry out the stores that are left; a load that is left was not waited for."""
    b = function(name, "void", [("ptr", "worker")])
    worker = b.param("worker")
    with count_range(b, get(b, worker, WORKER_BULK_COUNT)) as number:
        entry = entry_at(b, worker, number)
        store = b.icmp("eq", get(b, entry, ENTRY_MBARRIER), const("i32", NO_MBARRIER))
        with when(b, store):
            b.call(symbol(_PERFORM), "void", [worker, entry])
        with when(b, b.op("xor", store, const("i1", 1)), likely=False):
            _report(b, worker, entry, NOT_AWAITED)
    put(b, worker, WORKER_BULK_COUNT, const("i32", 0))
    b.ret()
    return b
