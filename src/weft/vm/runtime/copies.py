"""Asynchronous copies from global to shared memory: queued at the instruction, carried out at the wait.

    void cp.async.{4,8,16} (warp, <32 x i32> dst, <32 x i64> src, <32 x i32> source_bytes, i32 mask, i32 site)
    void cp.commit         (warp, i32 mask)
    void cp.wait           (warp, i32 pending, i32 mask, i32 site)
    void cp.async.arrive   (warp, <32 x i32> mbarrier, i32 mask, i32 site)
    void cp.settle         (warp, i32 mbarrier)
A lane's copies belong to its group number WARP_GROUP at the time of issue; a commit closes the group by
counting WARP_GROUP up. The wait carries out, in the order of issue, the copies of groups below `committed -
pending` in the lanes of `mask`; pending = -1 takes all, committed or not. The source is read at the wait, no
earlier, and bytes beyond `source_bytes` become zero. Addresses are checked at the instruction: a lane whose
destination or source is out of bounds or misaligned is reported and makes no copy; a source of no bytes is
not checked.

cp.async.arrive queues an entry of size 0: an arrival at an mbarrier once the lane's earlier copies are complete. It
happens at the wait that covers it, or when a thread tests that mbarrier: cp.settle then carries out those copies, of
any warp of the CTA.

Watchers see the load from global memory and the copy at the instruction, and the store to shared memory when it is
carried out, with the site of the instruction that requested it. Which threads can rely on the copy at that time, they
derive from the groups, the waits and the arrivals.

The warp's queue is an array of entries of COPY_BYTES, WARP_COPY_COUNT of them in use:
    ENTRY_DST      32 x i32  shared addresses
    ENTRY_SRC      32 x i64  offsets in the global arena (meaningless where no byte is taken)
    ENTRY_TAKEN    32 x i32  bytes that come from the source
    ENTRY_GROUP    32 x i32  group numbers
    ENTRY_LANES    i32       lanes whose copy has not been carried out
    ENTRY_SIZE     i32       bytes per lane: 4, 8 or 16; 0 for an arrival at the mbarrier ENTRY_DST
    ENTRY_SITE     i32       the instruction
"""

from weft.core.errors import Unsupported

from ..context import (
    COPY_QUEUE_FULL,
    MISALIGNED,
    OUT_OF_BOUNDS,
    WARP_BYTES,
    WARP_COPIES,
    WARP_COPY_CAPACITY,
    WARP_COPY_COUNT,
    WARP_GLOBAL,
    WARP_GROUP,
    WARP_SHARED,
    WARP_WORKER,
    WORKER_WARP_COUNT,
    WORKER_WARPS,
    Field,
)
from ..ir import LANES, Builder, Value, const, vec
from ..memory import SHARED_BASE, SHARED_START
from .bounds import global_window, owned, report_lanes, shared_window, straight, without
from .shape import Variable, bits, count_range, each_lane, function, get, put, symbol, unbits, when
from .watch import Access, Instrumentation

ENTRY_DST = Field(0, "i32")
ENTRY_SRC = Field(128, "i64")
ENTRY_TAKEN = Field(384, "i32")
ENTRY_GROUP = Field(512, "i32")
ENTRY_LANES = Field(640, "i32")
ENTRY_SIZE = Field(644, "i32")
ENTRY_SITE = Field(648, "i32")
COPY_BYTES = 704
"""Size of one entry; a multiple of 64."""

_SIZES = (4, 8, 16)
_LINE = vec("i32", 16)
_PERFORM = "cp.perform"
_FORGET = "cp.forget"
SETTLE = "cp.settle"
_LAND = "mbarrier.land"


def build_copies(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    match name:
        case "cp.commit":
            return [_commit(name, watch)]
        case "cp.wait":
            return [_wait(name, watch)]
        case "cp.perform":
            return [_perform(watch)]
        case "cp.forget":
            return [_forget(name)]
        case "cp.settle":
            return [_settle(name)]
        case "cp.async.arrive":
            return [_announce(name, watch)]
    if name in {f"cp.async.{size}" for size in _SIZES}:
        return [_issue(name, int(name.split(".")[2]), watch)]
    raise Unsupported(f"runtime function {name}")


def _issue(name: str, size: int, watch: Instrumentation) -> Builder:
    places = [(vec("i32"), "dst"), (vec("i64"), "src"), (vec("i32"), "source_bytes")]
    b = function(name, "void", [("ptr", "warp"), *places, ("i32", "mask"), ("i32", "site")])
    warp, dst, src, mask = (b.param(given) for given in ("warp", "dst", "src", "mask"))
    near, far = shared_window(b), global_window(b)
    taken = b.intrinsic("umin", vec("i32"), [b.param("source_bytes"), const(vec("i32"), size)])
    to = b.op("sub", dst, const(vec("i32"), near.base))
    start = b.op("sub", src, const(vec("i64"), far.base))
    idle = bits(b, b.icmp("eq", taken, const(vec("i32"), 0)))
    # A copy of fewer bytes than its size is a tail: both ends of the bytes that it reads must be in an allocation.
    reading = without(b, mask, idle)
    end = b.op("sub", b.op("add", start, b.cast("zext", taken, vec("i64"))), const(vec("i64"), 1))
    reads = b.op("and", owned(b, "global", start, reading, 1), owned(b, "global", end, reading, 1))
    source_in, source_straight = b.op("or", idle, reads), b.op("or", idle, straight(b, start, size))
    target_in, target_straight = owned(b, "shared", to, mask, size), straight(b, to, size)
    placed = b.op("and", target_in, source_in)
    good = b.op("and", mask, b.op("and", placed, b.op("and", target_straight, source_straight)))
    with when(b, b.icmp("ne", good, mask), likely=False):
        inside = b.op("and", mask, placed)
        # Two addresses in two spaces: the target's address is reported as a generic one.
        to_generic = b.op("add", b.cast("zext", dst, vec("i64")), const(vec("i64"), SHARED_BASE))
        report_lanes(b, OUT_OF_BOUNDS, without(b, mask, target_in), to_generic)
        report_lanes(b, OUT_OF_BOUNDS, without(b, mask, source_in), src)
        report_lanes(b, MISALIGNED, without(b, inside, target_straight), to_generic)
        report_lanes(b, MISALIGNED, without(b, inside, source_straight), src)
    watch.access(b, Access(False, "global", size, start, without(b, good, idle), contiguous=False))
    watch.copy(b, Access(True, "shared", size, to, good, contiguous=False))
    count = get(b, warp, WARP_COPY_COUNT)
    fits = b.icmp("ult", count, get(b, warp, WARP_COPY_CAPACITY))
    with when(b, b.op("and", fits, b.icmp("ne", good, const("i32", 0))), likely=True):
        entry = _entry(b, get(b, warp, WARP_COPIES), count)
        for field, value in (
            (ENTRY_DST, dst),
            (ENTRY_SRC, start),
            (ENTRY_TAKEN, taken),
            (ENTRY_GROUP, _lanes(b, warp, WARP_GROUP)),
            (ENTRY_LANES, good),
            (ENTRY_SIZE, const("i32", size)),
            (ENTRY_SITE, b.param("site")),
        ):
            b.store(value, b.offset(entry, field.at), align=4)
        put(b, warp, WARP_COPY_COUNT, b.op("add", count, const("i32", 1)))
    with when(b, b.op("xor", fits, const("i1", 1)), likely=False):
        report_lanes(b, COPY_QUEUE_FULL, good, dst)
    b.ret()
    return b


def _entry(b: Builder, queue: Value, number: Value) -> Value:
    return b.offset(queue, b.op("mul", b.cast("zext", number, "i64"), const("i64", COPY_BYTES)))


def _lanes(b: Builder, record: Value, field: Field) -> Value:
    """Return a member that has one element per lane."""
    return b.load(vec(field.ty), b.offset(record, field.at), align=4)


def _commit(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", [("ptr", "warp"), ("i32", "mask")])
    groups = _lanes(b, b.param("warp"), WARP_GROUP)
    more = b.cast("zext", unbits(b, b.param("mask")), vec("i32"))
    b.store(b.op("add", groups, more), b.offset(b.param("warp"), WARP_GROUP.at), align=4)
    watch.copy_group(b, b.param("mask"))
    b.ret()
    return b


def _wait(name: str, watch: Instrumentation) -> Builder:
    b = function(name, "void", [("ptr", "warp"), ("i32", "pending"), ("i32", "mask"), ("i32", "site")])
    warp, pending = b.param("warp"), b.param("pending")
    count = get(b, warp, WARP_COPY_COUNT)
    queue = get(b, warp, WARP_COPIES)
    limit = b.op("sub", _lanes(b, warp, WARP_GROUP), b.splat(pending))
    everything = b.cast("sext", b.icmp("eq", pending, const("i32", -1)), "i32")
    with count_range(b, count) as number:
        entry = _entry(b, queue, number)
        waiting = get(b, entry, ENTRY_LANES)
        old_enough = b.op("or", everything, bits(b, b.icmp("slt", _lanes(b, entry, ENTRY_GROUP), limit)))
        lanes = b.op("and", waiting, b.op("and", b.param("mask"), old_enough))
        rest = b.op("xor", waiting, lanes)
        with when(b, b.icmp("ne", lanes, const("i32", 0))):
            b.call(symbol(_PERFORM), "void", [warp, entry, lanes, get(b, entry, ENTRY_SITE)])
            put(b, entry, ENTRY_LANES, rest)
    b.call(symbol(_FORGET), "void", [warp])
    watch.copy_wait(b, pending, b.param("mask"))
    b.ret()
    return b


def _forget(name: str) -> Builder:
    """Remove the completed entries, up to the first that is not completed."""
    b = function(name, "void", [("ptr", "warp")])
    warp = b.param("warp")
    count, queue = get(b, warp, WARP_COPY_COUNT), get(b, warp, WARP_COPIES)
    front = Variable(b, const("i32", 0))
    with count_range(b, count) as number:
        rest = get(b, _entry(b, queue, number), ENTRY_LANES)
        so_far = front.get()
        in_front = b.op("and", b.icmp("eq", so_far, number), b.icmp("eq", rest, const("i32", 0)))
        front.set(b.op("add", so_far, b.cast("zext", in_front, "i32")))
    done = front.get()
    with when(b, b.icmp("ne", done, const("i32", 0))):
        left = b.op("sub", count, done)
        put(b, warp, WARP_COPY_COUNT, left)
        with count_range(b, left) as number:
            source, target = _entry(b, queue, b.op("add", number, done)), _entry(b, queue, number)
            for at in range(0, COPY_BYTES, 64):
                b.store(b.load(_LINE, b.offset(source, at), align=4), b.offset(target, at), align=4)
    b.ret()
    return b


def _announce(name: str, watch: Instrumentation) -> Builder:
    """Queue an arrival."""
    b = function(name, "void", [("ptr", "warp"), (vec("i32"), "mbarrier"), ("i32", "mask"), ("i32", "site")])
    warp, mask = b.param("warp"), b.param("mask")
    to = b.op("sub", b.param("mbarrier"), const(vec("i32"), SHARED_START))
    good = b.op("and", b.op("and", mask, owned(b, "shared", to, mask, 8)), straight(b, to, 8))
    watch.copy_arrival(b, to, good)
    count = get(b, warp, WARP_COPY_COUNT)
    fits = b.icmp("ult", count, get(b, warp, WARP_COPY_CAPACITY))
    with when(b, b.op("and", fits, b.icmp("ne", good, const("i32", 0))), likely=True):
        entry = _entry(b, get(b, warp, WARP_COPIES), count)
        for field, value in (
            (ENTRY_DST, b.param("mbarrier")),
            (ENTRY_GROUP, _lanes(b, warp, WARP_GROUP)),
            (ENTRY_LANES, good),
            (ENTRY_SIZE, const("i32", 0)),
            (ENTRY_SITE, b.param("site")),
        ):
            b.store(value, b.offset(entry, field.at), align=4)
        put(b, warp, WARP_COPY_COUNT, b.op("add", count, const("i32", 1)))
    with when(b, b.op("xor", fits, const("i1", 1)), likely=False):
        report_lanes(b, COPY_QUEUE_FULL, good, b.param("mbarrier"))
    b.ret()
    return b


def _settle(name: str) -> Builder:
    """Carry out the copies that the arrivals at one mbarrier wait for, and the arrivals, in all warps of the CTA."""
    b = function(name, "void", [("ptr", "warp"), ("i32", "mbarrier")])
    worker = get(b, b.param("warp"), WARP_WORKER)
    with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as index:
        at = b.op("mul", b.cast("zext", index, "i64"), const("i64", WARP_BYTES))
        warp = b.offset(get(b, worker, WORKER_WARPS), at)
        queue = get(b, warp, WARP_COPIES)
        with count_range(b, get(b, warp, WARP_COPY_COUNT)) as number:
            entry = _entry(b, queue, number)
            here = bits(b, b.icmp("eq", _lanes(b, entry, ENTRY_DST), b.splat(b.param("mbarrier"))))
            arrival = b.icmp("eq", get(b, entry, ENTRY_SIZE), const("i32", 0))
            lanes = b.select(arrival, b.op("and", here, get(b, entry, ENTRY_LANES)), const("i32", 0))
            with (
                when(b, b.icmp("ne", lanes, const("i32", 0))),
                count_range(b, b.op("add", number, const("i32", 1))) as before,
            ):
                earlier = _entry(b, queue, before)
                waiting = get(b, earlier, ENTRY_LANES)
                now = b.op("and", waiting, lanes)
                with when(b, b.icmp("ne", now, const("i32", 0))):
                    b.call(symbol(_PERFORM), "void", [warp, earlier, now, get(b, earlier, ENTRY_SITE)])
                    put(b, earlier, ENTRY_LANES, b.op("xor", waiting, now))
        b.call(symbol(_FORGET), "void", [warp])
    b.ret()
    return b


def _perform(watch: Instrumentation) -> Builder:
    """Carry out the copies of `lanes` of one entry; `site` is the instruction that requested them."""
    b = function(_PERFORM, "void", [("ptr", "warp"), ("ptr", "record"), ("i32", "lanes"), ("i32", "site")])
    entry = b.param("record")
    labels = {size: b.label(f"bytes{size}") for size in (0, *_SIZES)}
    b.switch(get(b, entry, ENTRY_SIZE), labels[_SIZES[-1]], [(size, labels[size]) for size in (0, *_SIZES[:-1])])
    b.place(labels[0])
    b.call(symbol(_LAND), "void", [b.param("warp"), entry, b.param("lanes"), b.param("site")])
    b.ret()
    for size in _SIZES:
        b.place(labels[size])
        _perform_size(b, size, watch)
        b.ret()
    return b


def _perform_size(b: Builder, size: int, watch: Instrumentation) -> None:
    warp, entry, lanes = b.param("warp"), b.param("record"), b.param("lanes")
    near, far = get(b, warp, WARP_SHARED), get(b, warp, WARP_GLOBAL)
    piece = "i32" if size == 4 else vec("i32", size // 4)
    taken = _lanes(b, entry, ENTRY_TAKEN)
    offsets = b.op("sub", _lanes(b, entry, ENTRY_DST), const(vec("i32"), SHARED_START))
    watch.access(b, Access(True, "shared", size, offsets, lanes, contiguous=False, copied=True))
    whole = b.op("and", lanes, bits(b, b.icmp("eq", taken, const(vec("i32"), size))))
    all_lanes, some_lanes, after = b.label("all_lanes"), b.label("some_lanes"), b.label("after")
    b.cbr(b.icmp("eq", whole, const("i32", -1)), all_lanes, some_lanes, likely=True)
    b.place(all_lanes)
    for number in range(LANES):
        to = b.offset(near, b.cast("zext", get(b, entry, ENTRY_DST, number), "i64"))
        b.store(b.load(piece, b.offset(far, get(b, entry, ENTRY_SRC, number)), align=size), to, align=size)
    b.br(after)
    b.place(some_lanes)
    padded = b.alloca(f"[{size} x i8]")
    with each_lane(b, lanes) as lane:
        index = b.cast("zext", lane, "i64")
        count = _of_lane(b, entry, ENTRY_TAKEN, index)
        to = b.offset(near, b.cast("zext", _of_lane(b, entry, ENTRY_DST, index), "i64"))
        source = b.offset(far, _of_lane(b, entry, ENTRY_SRC, index))
        short = b.icmp("ne", count, const("i32", size))
        with when(b, short):
            b.store(const(piece, 0), padded, align=size)
            with count_range(b, b.cast("zext", count, "i64")) as i:
                b.store(b.load("i8", b.offset(source, i)), b.offset(padded, i))
        b.store(b.load(piece, b.select(short, padded, source), align=size), to, align=size)
    b.place(after)


def _of_lane(b: Builder, entry: Value, field: Field, index: Value) -> Value:
    """Return one lane's element of a member."""
    width = 8 if field.ty == "i64" else 4
    return b.load(field.ty, b.offset(b.offset(entry, field.at), b.op("mul", index, const("i64", width))), align=4)
