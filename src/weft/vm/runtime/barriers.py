"""Barriers of a CTA: lanes arrive and wait, the scheduler completes those at which all have arrived.

    void barrier.arrive(warp, i32 number, i32 expected, i32 lanes, i32 true, i32 waits, i32 site)
    i32  release(worker)
There are also functions that only watchers need: lanes have met before, and memory is in program order.
"""

from collections.abc import Callable

from ..context import (
    BAD_BARRIER,
    BAD_COUNT,
    BARRIER_ARRIVED,
    BARRIER_BYTES,
    BARRIER_COUNT,
    BARRIER_EXPECTED,
    BARRIER_RESULT,
    BARRIER_TRUE,
    MIXED_COUNTS,
    SPLIT_BARRIER,
    TOO_MANY,
    WARP_BLOCKED,
    WARP_BYTES,
    WARP_LIVE,
    WARP_SITES,
    WARP_WAITING,
    WARP_WORKER,
    WORKER_BARRIERS,
    WORKER_BLOCK_THREADS,
    WORKER_THREADS,
    WORKER_WARP_COUNT,
    WORKER_WARPS,
    Field,
)
from ..ir import LANES, Builder, Value, const, vec
from .shape import Variable, bits, count_range, function, get, loop, put, report, symbol, when
from .watch import Instrumentation


def warp_of(b: Builder, worker: Value, index: Value) -> Value:
    """Return the record of a warp of the CTA, by its number."""
    wide = b.cast("zext", index, "i64")
    return b.offset(get(b, worker, WORKER_WARPS), b.op("mul", wide, const("i64", WARP_BYTES)))


def build_release(watch: Instrumentation) -> Builder:
    """Complete every barrier whose threads have all arrived; return whether there was one."""
    b = function("release", "i32", [("ptr", "worker")])
    worker = b.param("worker")
    done = Variable(b, const("i32", 0))
    watches = watch.wants("barrier") or watch.wants("complete")
    with count_range(b, const("i32", BARRIER_COUNT)) as number:
        wide = b.cast("zext", number, "i64")
        barrier = b.offset(b.offset(worker, WORKER_BARRIERS.at), b.op("mul", wide, const("i64", BARRIER_BYTES)))
        arrived = get(b, barrier, BARRIER_ARRIVED)
        expected = get(b, barrier, BARRIER_EXPECTED)
        uncounted = b.icmp("eq", expected, const("i32", 0))
        needed = b.select(uncounted, get(b, worker, WORKER_THREADS), expected)
        full = b.op("and", b.icmp("ne", arrived, const("i32", 0)), b.icmp("uge", arrived, needed))
        with when(b, full):
            done.set(const("i32", 1))
            true = get(b, barrier, BARRIER_TRUE)
            every = b.select(b.icmp("eq", true, arrived), const("i32", -(1 << 31)), const("i32", 0))
            put(b, barrier, BARRIER_RESULT, b.op("or", true, every))
            for field in (BARRIER_ARRIVED, BARRIER_TRUE, BARRIER_EXPECTED):
                put(b, barrier, field, const("i32", 0))
            everyone = _everyone_waits(b, worker, wide, uncounted) if watches else const("i1", 0)
            with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as index:
                warp = warp_of(b, worker, index)
                place = b.offset(b.offset(warp, WARP_WAITING.at), b.op("shl", wide, const("i64", 2)))
                freed = b.load("i32", place, align=4)
                b.store(const("i32", 0), place, align=4)
                kept = b.op("xor", freed, const("i32", -1))
                put(b, warp, WARP_BLOCKED, b.op("and", get(b, warp, WARP_BLOCKED), kept))
            watch.barrier(b, worker, everyone)
            watch.complete(b, worker, number, everyone)
    b.ret(done.get())
    return b


def _everyone_waits(b: Builder, worker: Value, barrier: Value, uncounted: Value) -> Value:
    """Return whether the lanes that wait at a barrier (not only arrived there) are all threads.

    Exited threads are not needed at a barrier for the entire CTA; at a barrier with a count they are.
    """
    waiting = Variable(b, const("i32", 0))
    with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as index:
        place = b.offset(b.offset(warp_of(b, worker, index), WARP_WAITING.at), b.op("shl", barrier, const("i64", 2)))
        lanes = b.intrinsic("ctpop", "i32", [b.load("i32", place, align=4)])
        waiting.set(b.op("add", waiting.get(), lanes))
    threads = b.select(uncounted, get(b, worker, WORKER_THREADS), get(b, worker, WORKER_BLOCK_THREADS))
    return b.icmp("uge", waiting.get(), threads)


def build_arrive(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function by which lanes arrive at a CTA barrier and, if `waits`, block there.

    void barrier.arrive(warp, i32 number, i32 expected, i32 lanes, i32 true, i32 waits, i32 site)
    """
    if name == "barrier.alone":
        b = function(name, "void", [("ptr", "warp"), ("i32", "site")])
        watch.barrier(b, get(b, b.param("warp"), WARP_WORKER), const("i1", 1))
        watch.warp_sync(b, get(b, b.param("warp"), WARP_LIVE))
        b.ret()
        return [b]
    params = [("ptr", "warp"), *(("i32", given) for given in ("number", "expected", "lanes", "true", "waits", "site"))]
    b = function(name, "void", params)
    warp, number, lanes = b.param("warp"), b.param("number"), b.param("lanes")
    with when(b, b.icmp("uge", number, const("i32", BARRIER_COUNT)), likely=False):
        wide = b.cast("zext", number, "i64")
        b.call(symbol("report"), "void", [warp, const("i32", BAD_BARRIER), b.param("site"), lanes, wide])
        b.ret()
    odd = b.icmp("ne", b.op("and", b.param("expected"), const("i32", LANES - 1)), const("i32", 0))
    with when(b, odd, likely=False):
        asked = b.cast("zext", b.param("expected"), "i64")
        b.call(symbol("report"), "void", [warp, const("i32", BAD_COUNT), b.param("site"), lanes, asked])
    _check_count(b)
    watch.arrive(b, number, lanes, b.param("waits"))
    wide = b.cast("zext", number, "i64")
    worker = get(b, warp, WARP_WORKER)
    barrier = b.offset(b.offset(worker, WORKER_BARRIERS.at), b.op("mul", wide, const("i64", BARRIER_BYTES)))

    def add(field: Field, mask: Value) -> None:
        more = b.intrinsic("ctpop", "i32", [mask])
        put(b, barrier, field, b.op("add", get(b, barrier, field), more))

    add(BARRIER_ARRIVED, lanes)
    # A counted barrier counts entire warps: lanes that do not exist or have exited arrive with the lowest live lane.
    live = get(b, warp, WARP_LIVE)
    lowest = b.op("and", live, b.op("sub", const("i32", 0), live))
    leads = b.icmp("ne", b.op("and", lanes, lowest), const("i32", 0))
    counted = b.icmp("ne", b.param("expected"), const("i32", 0))
    with when(b, b.op("and", leads, counted)):
        add(BARRIER_ARRIVED, b.op("xor", live, const("i32", -1)))
    add(BARRIER_TRUE, b.param("true"))
    put(b, barrier, BARRIER_EXPECTED, b.param("expected"))
    with when(b, b.icmp("ne", b.param("waits"), const("i32", 0))):
        place = b.offset(b.offset(warp, WARP_WAITING.at), b.op("shl", wide, const("i64", 2)))
        waiting = b.load("i32", place, align=4)
        _check_together(b, waiting, b.offset(b.offset(warp, WARP_SITES.at), b.op("shl", wide, const("i64", 2))))
        b.store(b.op("or", waiting, lanes), place, align=4)
        put(b, warp, WARP_BLOCKED, b.op("or", get(b, warp, WARP_BLOCKED), lanes))
    b.ret()
    return [b]


def _check_count(b: Builder) -> None:
    """Report a thread count that can never be reached, or that differs from other arrivals at this barrier."""
    warp, expected = b.param("warp"), b.param("expected")
    worker = get(b, warp, WARP_WORKER)
    whole = b.op(
        "and", b.op("add", get(b, worker, WORKER_BLOCK_THREADS), const("i32", LANES - 1)), const("i32", -LANES)
    )
    at = b.op("mul", b.cast("zext", b.param("number"), "i64"), const("i64", BARRIER_BYTES))
    barrier = b.offset(b.offset(worker, WORKER_BARRIERS.at), at)
    begun = b.icmp("ne", get(b, barrier, BARRIER_ARRIVED), const("i32", 0))
    other = b.icmp("ne", get(b, barrier, BARRIER_EXPECTED), expected)
    mixed = b.op("and", begun, other)
    for code, wrong in ((TOO_MANY, b.icmp("ugt", expected, whole)), (MIXED_COUNTS, mixed)):
        with when(b, wrong, likely=False):
            report(b, code, b.param("lanes"), b.cast("zext", expected, "i64"))


def _check_together(b: Builder, waiting: Value, site: Value) -> None:
    """Check that lanes of a warp that wait at one barrier arrived by one instruction, if that is required."""
    aligned = b.icmp("ne", b.op("and", b.param("waits"), const("i32", 2)), const("i32", 0))
    elsewhere = b.icmp("ne", b.load("i32", site, align=4), b.param("site"))
    apart = b.op("and", b.icmp("ne", waiting, const("i32", 0)), elsewhere)
    with when(b, b.op("and", aligned, apart), likely=False):
        report(b, SPLIT_BARRIER, b.param("lanes"), b.cast("zext", b.param("number"), "i64"))
    b.store(b.param("site"), site, align=4)


def build_order(name: str, watch: Instrumentation) -> list[Builder]:
    """Return functions that only watchers need: lanes have met before, and memory is in program order.

    void warp.sync(warp, i32 lanes, i32 site), void fence(warp, i32 lanes, i32 site)
    void fence.async(warp, i32 lanes, i32 site)                            fence.proxy.async
    void fence.map.release(warp, i32 lanes, i32 site), void fence.map.acquire(the same, <32 x i64> address)
    void products.commit(warp, i32 lanes, i32 site), void products.wait(warp, i32 lanes, i32 pending)
    void warp.sync.each(warp, i32 lanes, i32 site, <32 x i32> members)     lanes with the same mask meet
    """
    params = [("ptr", "warp"), ("i32", "lanes"), ("i32", "site")]
    if name == "fence.map.acquire":
        b = function(name, "void", [*params, (vec("i64"), "address")])
        watch.map_acquire(b, b.param("address"), b.param("lanes"))
        b.ret()
        return [b]
    if name == "products.wait":
        b = function(name, "void", [*params[:2], ("i32", "pending")])
        watch.agent_wait(b, "wgmma", b.param("pending"), b.param("lanes"))
        b.ret()
        return [b]
    if name != "warp.sync.each":
        b = function(name, "void", params)
        events: dict[str, Callable[[Builder, Value], None]] = {
            "warp.sync": watch.warp_sync,
            "fence": watch.fence,
            "fence.async": watch.proxy_fence,
            "fence.map.release": watch.map_release,
            "products.commit": lambda builder, lanes: watch.agent_group(builder, "wgmma", lanes),
        }
        events[name](b, b.param("lanes"))
        b.ret()
        return [b]
    b = function(name, "void", [*params, (vec("i32"), "members")])
    if watch.wants("warp_sync"):
        left = Variable(b, b.param("lanes"))
        with loop(b, lambda: b.icmp("ne", left.get(), const("i32", 0))):
            first = b.intrinsic("cttz", "i32", [left.get(), const("i1", 1)])
            mask = b.extract(b.param("members"), first)
            same = b.op("and", left.get(), bits(b, b.icmp("eq", b.param("members"), b.splat(mask))))
            left.set(b.op("xor", left.get(), same))
            watch.warp_sync(b, b.op("and", same, mask))
    b.ret()
    return [b]
