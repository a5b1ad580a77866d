"""The CTA scheduler, run by each host thread: take a CTA, give its warps turns, complete barriers, continue.

    i32 run(ptr worker)

A kernel whose CTAs may wait for each other has several places in the ring that starts at `worker`; each of their CTAs
gets a round in turn. Those of a cluster start together, when the places of the cluster are free. Other kernels have one
place, whose CTA runs to its end.

It returns DONE when the grid is finished, NEED_DIVERGENT when a warp diverged and its code is not compiled yet
(the host compiles it and calls again), STOPPED when the launch must end. All state is in the records, so a worker
can return to the host at any time and continue later.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..context import (
    BARRIER_BYTES,
    BARRIER_COUNT,
    BEHIND,
    CLUSTER,
    CONVERGED,
    DEADLOCK,
    DIVERGED,
    DONE,
    EXITED,
    GRID_DIM,
    GRID_NEXT,
    GRID_ORDER,
    GRID_STOP,
    GRID_TOTAL,
    GROUP,
    NEED_DIVERGENT,
    NO_ARRIVAL,
    NO_CLUSTER,
    NO_REGISTERS,
    OUT_OF_BUDGET,
    OUT_OF_ROOM,
    POOL,
    STOPPED,
    STUCK,
    TRAPPED,
    WARP_ARRIVED,
    WARP_BLOCKED,
    WARP_BULK_GROUP,
    WARP_CLOCK,
    WARP_COPY_COUNT,
    WARP_CTAID,
    WARP_DIVERGENT,
    WARP_GROUP,
    WARP_HASH,
    WARP_LIVE,
    WARP_MISSING,
    WARP_NSMID,
    WARP_ODD,
    WARP_PC,
    WARP_POLLED,
    WARP_REGISTERS,
    WARP_RELEASED,
    WARP_REPEATS,
    WARP_RESUME,
    WARP_SHARED,
    WARP_SLICE,
    WARP_SMID,
    WARP_SPENT,
    WARP_STEPS,
    WARP_TO_WAIT,
    WARP_WAITING,
    WARP_WORKER,
    WORKER_BARRIERS,
    WORKER_BLOCK_THREADS,
    WORKER_BUDGET,
    WORKER_BULK_COUNT,
    WORKER_BULK_FINISH,
    WORKER_BUSY,
    WORKER_CALL_HOST,
    WORKER_CLUSTER,
    WORKER_CTA,
    WORKER_DIVERGENT,
    WORKER_FAST,
    WORKER_FRAME_BYTES,
    WORKER_FRAMES,
    WORKER_FRUITLESS,
    WORKER_GRID,
    WORKER_NEXT,
    WORKER_PHASE,
    WORKER_RANK,
    WORKER_REGIONS,
    WORKER_REGISTERS,
    WORKER_REPORT_CAPACITY,
    WORKER_REPORT_COUNT,
    WORKER_RESERVED,
    WORKER_RESERVED_BYTES,
    WORKER_RING,
    WORKER_SHARED,
    WORKER_SHARED_BYTES,
    WORKER_SLICE,
    WORKER_THREADS,
    WORKER_WARP_COUNT,
    WORKER_WARP_ORDER,
    WORKER_WARPGROUPS,
    WORKER_WARPGROUPS_BYTES,
    WORKER_WARPGROUPS_FINISH,
)
from ..ir import LANES, Builder, Value, const, vec
from ..mbarrier_word import COUNT_MASK, STATE_BYTES_SHIFT, STATE_MISSING_SHIFT
from .barriers import build_release, warp_of
from .cluster import peer_of
from .mbarrier import pending_at
from .shape import Variable, bits, count_range, function, get, loop, put, symbol, when
from .watch import Instrumentation

SHUFFLED_CLOCK = 3_600_000_000_000_003
"""Start of the clock in another order of CTAs; odd, so that its lowest bit changes too."""
MOST_FRUITLESS = 1 << 13
"""Rounds in which all warps only wait for mbarriers, registers or other warps, and nothing changes, before that is a
deadlock, if a loop may test a limited number of times. If all loops only repeat their test, one such round is."""
POLL_COST = 64
"""Loop iterations that a turn counts as if the warp ended it in waiting."""


_TESTED, _WORKED, _TRIED = 1, 2, 4
"""What a warp did in its turn: it ended by an unsuccessful test of an mbarrier, or otherwise; `_TRIED`: by a test in a
loop that may end without success."""


def build_run(name: str, watch: Instrumentation) -> list[Builder]:
    """Return `run` and the functions it uses."""
    return [_run(), _begin_cta(watch), _turn(), build_release(watch)]


def _run() -> Builder:
    b = function("run", "i32", [("ptr", "worker")])
    current, idle = Variable(b, b.param("worker")), Variable(b, const("i32", 0))
    grid = get(b, b.param("worker"), WORKER_GRID)
    with loop(b, lambda: const("i1", 1)):
        worker = current.get()
        current.set(get(b, worker, WORKER_NEXT))
        with when(b, _starts(b, worker)):
            stop = b.emit("i32", f"load atomic i32, ptr {b.offset(grid, GRID_STOP.at).ref} monotonic, align 4")
            with when(b, b.icmp("ne", stop, const("i32", 0))):
                b.ret(const("i32", STOPPED))
            size = b.cast("zext", get(b, worker, WORKER_CLUSTER), "i64")
            following = b.offset(grid, GRID_NEXT.at).ref
            number = b.emit("i64", f"atomicrmw add ptr {following}, i64 {size.ref} monotonic")
            with when(b, b.icmp("ult", number, get(b, grid, GRID_TOTAL))), count_range(b, size) as rank:
                b.call(symbol("begin_cta"), "void", [peer_of(b, worker, rank), b.op("add", number, rank)])
        with when(b, b.icmp("eq", get(b, worker, WORKER_BUSY), const("i32", 0))):
            idle.set(b.op("add", idle.get(), const("i32", 1)))
            with when(b, b.icmp("uge", idle.get(), get(b, worker, WORKER_RING))):
                b.ret(const("i32", DONE))
        with when(b, b.icmp("ne", get(b, worker, WORKER_BUSY), const("i32", 0)), likely=True):
            idle.set(const("i32", 0))
            status = b.call(symbol("turn"), "i32", [worker])
            with when(b, b.icmp("eq", status, const("i32", NEED_DIVERGENT))):
                b.ret(status)
            with when(b, b.icmp("eq", status, const("i32", STOPPED))):
                where = b.offset(grid, GRID_STOP.at)
                b.do(f"store atomic i32 1, ptr {where.ref} monotonic, align 4")
                b.ret(status)
    b.do("unreachable")
    return b


def _starts(b: Builder, worker: Value) -> Value:
    """Return whether a cluster can start here: the worker has rank 0, and no CTA of the last one is running."""
    busy = Variable(b, get(b, worker, WORKER_RANK))
    with count_range(b, b.cast("zext", get(b, worker, WORKER_CLUSTER), "i64")) as rank:
        busy.set(b.op("or", busy.get(), get(b, peer_of(b, worker, rank), WORKER_BUSY)))
    return b.icmp("eq", busy.get(), const("i32", 0))


def _begin_cta(watch: Instrumentation) -> Builder:
    b = function("begin_cta", "void", [("ptr", "worker"), ("i64", "number")])
    worker = b.param("worker")
    grid = get(b, worker, WORKER_GRID)
    order = get(b, grid, GRID_ORDER)
    cta = Variable(b, b.cast("trunc", b.param("number"), "i32"))
    with when(b, b.icmp("ne", order, Value("ptr", "null"))):
        place = b.offset(order, b.op("shl", b.param("number"), const("i64", 2)))
        cta.set(b.load("i32", place, align=4))
    number = cta.get()
    put(b, worker, WORKER_CTA, number)
    put(b, worker, WORKER_BUSY, const("i32", 1))
    put(b, worker, WORKER_FRUITLESS, const("i32", 0))
    put(b, worker, WORKER_BULK_COUNT, const("i32", 0))
    put(b, worker, WORKER_PHASE, const("i32", 0))
    put(b, worker, WORKER_THREADS, get(b, worker, WORKER_BLOCK_THREADS))
    fill = [get(b, worker, WORKER_SHARED), const("i8", 0xFF), get(b, worker, WORKER_SHARED_BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", fill, overloads=["ptr", "i64"])
    unset = [get(b, worker, WORKER_FRAMES), const("i8", 0), get(b, worker, WORKER_FRAME_BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", unset, overloads=["ptr", "i64"])
    steps = [get(b, worker, WORKER_WARPGROUPS), const("i8", 0), get(b, worker, WORKER_WARPGROUPS_BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", steps, overloads=["ptr", "i64"])
    barriers = b.offset(worker, WORKER_BARRIERS.at)
    clear = [barriers, const("i8", 0), const("i64", BARRIER_COUNT * BARRIER_BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", clear, overloads=["ptr", "i64"])
    width, height = get(b, grid, GRID_DIM, 0), get(b, grid, GRID_DIM, 1)
    x = b.op("urem", number, width)
    rows = b.op("udiv", number, width)
    y, z = b.op("urem", rows, height), b.op("udiv", rows, height)
    threads = get(b, worker, WORKER_BLOCK_THREADS)
    with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as index:
        warp = warp_of(b, worker, index)
        for axis, value in enumerate((x, y, z)):
            put(b, warp, WARP_CTAID, value, axis)
        left = b.op("sub", threads, b.op("mul", index, const("i32", LANES)))
        full = b.icmp("uge", left, const("i32", LANES))
        few = b.op("sub", b.op("shl", const("i32", 1), b.op("and", left, const("i32", 31))), const("i32", 1))
        put(b, warp, WARP_LIVE, b.select(full, const("i32", -1), few))
        put(b, warp, WARP_DIVERGENT, b.select(full, const("i32", 0), const("i32", 1)))
        for field in (WARP_BLOCKED, WARP_RESUME, WARP_COPY_COUNT, WARP_SPENT, WARP_RELEASED, WARP_STEPS, WARP_ARRIVED,
                      WARP_ODD, WARP_TO_WAIT):  # fmt: skip
            put(b, warp, field, const("i32", 0))
        put(b, warp, WARP_HASH, const("i64", 0))
        put(b, warp, WARP_REGISTERS, get(b, worker, WORKER_REGISTERS))
        # Another order is another time and another SM, so that a result that depends on either one changes.
        shuffled = b.icmp("ne", order, Value("ptr", "null"))
        sm = b.op("add", number, b.cast("zext", shuffled, "i32"))
        put(b, warp, WARP_SMID, b.op("urem", sm, get(b, warp, WARP_NSMID)))
        put(b, warp, WARP_CLOCK, b.select(shuffled, const("i64", SHUFFLED_CLOCK), const("i64", 0)))
        for field in (WARP_PC, WARP_GROUP, WARP_BULK_GROUP):
            b.store(const(vec("i32"), 0), b.offset(warp, field.at), align=64)
        b.store(const(vec("i32", 16), 0), b.offset(warp, WARP_WAITING.at), align=64)
    with when(b, b.icmp("ne", get(b, worker, WORKER_REGIONS), const("i32", 0)), likely=False):
        args = [worker, Value("ptr", "null"), const("i32", -1), const("i32", 0)]
        b.call_pointer(get(b, worker, WORKER_CALL_HOST), "void", args)
    watch.cta(b, worker)
    reserved = b.offset(get(b, worker, WORKER_SHARED), get(b, worker, WORKER_RESERVED))
    zero = [reserved, const("i8", 0), get(b, worker, WORKER_RESERVED_BYTES), const("i1", 0)]
    b.intrinsic("memset", "void", zero, overloads=["ptr", "i64"])
    b.ret()
    return b


def _turn() -> Builder:
    """Run one round over the warps of the CTA. DONE: continue; NEED_DIVERGENT, STOPPED: return to the host."""
    b = function("turn", "i32", [("ptr", "worker")])
    worker = b.param("worker")
    moved = Variable(b, const("i32", 0))
    alive = Variable(b, const("i32", 0))
    order = get(b, worker, WORKER_WARP_ORDER)
    with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as position:
        at = b.op("shl", b.cast("zext", position, "i64"), const("i64", 2))
        warp = warp_of(b, worker, b.load("i32", b.offset(order, at), align=4))
        live = get(b, warp, WARP_LIVE)
        with when(b, b.icmp("ne", live, const("i32", 0))):
            alive.set(const("i32", 1))
            blocked = get(b, warp, WARP_BLOCKED)
            ready = b.op("and", live, b.op("xor", blocked, const("i32", -1)))
            with when(b, b.icmp("ne", ready, const("i32", 0))):
                _give_turn(b, worker, warp, moved)
    with when(b, b.icmp("eq", alive.get(), const("i32", 0))):
        with when(b, b.icmp("ne", get(b, worker, WORKER_BULK_COUNT), const("i32", 0))):
            b.call_pointer(get(b, worker, WORKER_BULK_FINISH), "void", [worker])
        compare = get(b, worker, WORKER_WARPGROUPS_FINISH)
        with when(b, b.icmp("ne", compare, Value("ptr", "null"))):
            b.call_pointer(compare, "void", [worker])
        put(b, worker, WORKER_BUSY, const("i32", 0))
        b.ret(const("i32", DONE))
    freed = b.call(symbol("release"), "i32", [worker])
    with when(b, b.icmp("ne", b.op("or", freed, b.op("and", moved.get(), const("i32", _WORKED))), const("i32", 0))):
        put(b, worker, WORKER_FRUITLESS, const("i32", 0))
        b.ret(const("i32", DONE))
    with when(b, b.icmp("ne", moved.get(), const("i32", 0))):
        rounds = b.op("add", get(b, worker, WORKER_FRUITLESS), const("i32", 1))
        put(b, worker, WORKER_FRUITLESS, rounds)
        tried = b.icmp("ne", b.op("and", moved.get(), const("i32", _TRIED)), const("i32", 0))
        several = b.icmp("ugt", get(b, worker, WORKER_RING), const("i32", 1))
        most = b.select(b.op("or", tried, several), const("i32", MOST_FRUITLESS), const("i32", 1))
        hopeless = b.op("and", b.icmp("ugt", rounds, most), _all_fruitless(b, worker))
        with when(b, b.op("xor", hopeless, const("i1", 1)), likely=True):
            b.ret(const("i32", DONE))
    _report_waiting(b, worker)
    with _others(b, worker) as other, when(b, b.icmp("ne", get(b, other, WORKER_BUSY), const("i32", 0))):
        _report_waiting(b, other)
    b.ret(const("i32", STOPPED))
    return b


def _all_fruitless(b: Builder, worker: Value) -> Value:
    """Return whether no other CTA of the ring can help: for as many rounds, all of them only tested as well."""
    fruitless = Variable(b, const("i1", 1))
    with _others(b, worker) as other:
        idle = b.icmp("eq", get(b, other, WORKER_BUSY), const("i32", 0))
        waits = b.icmp("uge", get(b, other, WORKER_FRUITLESS), const("i32", MOST_FRUITLESS))
        fruitless.set(b.op("and", fruitless.get(), b.op("or", idle, waits)))
    return fruitless.get()


@contextmanager
def _others(b: Builder, worker: Value) -> Iterator[Value]:
    """Write a loop over the other places of the ring."""
    place = Variable(b, get(b, worker, WORKER_NEXT))
    with loop(b, lambda: b.icmp("ne", _number(b, place.get()), _number(b, worker))):
        other = place.get()
        yield other
        place.set(get(b, other, WORKER_NEXT))


def _number(b: Builder, pointer: Value) -> Value:
    return b.emit("i64", f"ptrtoint ptr {pointer.ref} to i64")


def _give_turn(b: Builder, worker: Value, warp: Value, moved: Variable) -> None:
    """Run one warp until it blocks, yields or ends; switch its code when it diverges and converges."""
    put(b, warp, WARP_SLICE, get(b, worker, WORKER_SLICE))
    put(b, warp, WARP_POLLED, const("i32", 0))
    status = Variable(b, const("i32", CONVERGED))

    def changes_copy() -> Value:
        now = status.get()
        return b.op("or", b.icmp("eq", now, const("i32", CONVERGED)), b.icmp("eq", now, const("i32", DIVERGED)))

    with loop(b, changes_copy):
        divergent = b.icmp("ne", get(b, warp, WARP_DIVERGENT), const("i32", 0))
        code = b.select(divergent, get(b, worker, WORKER_DIVERGENT), get(b, worker, WORKER_FAST))
        with when(b, b.icmp("eq", code, Value("ptr", "null"))):
            b.ret(const("i32", NEED_DIVERGENT))
        status.set(b.call_pointer(code, "i32", [warp]))
    now = status.get()
    with when(b, b.icmp("eq", now, const("i32", EXITED))):
        gone = b.intrinsic("ctpop", "i32", [get(b, warp, WARP_LIVE)])
        put(b, worker, WORKER_THREADS, b.op("sub", get(b, worker, WORKER_THREADS), gone))
        put(b, warp, WARP_LIVE, const("i32", 0))
    with when(b, b.icmp("eq", now, const("i32", TRAPPED))):
        b.ret(const("i32", STOPPED))
    # A turn that ends at a barrier counts too: an infinite loop may contain a barrier.
    whole = get(b, worker, WORKER_SLICE)
    polled = b.icmp("ne", get(b, warp, WARP_POLLED), const("i32", 0))
    spent = b.select(polled, const("i64", POLL_COST), b.op("sub", whole, get(b, warp, WARP_SLICE)))
    budget = get(b, worker, WORKER_BUDGET)
    left = b.op("sub", b.load("i64", budget, align=8), spent)
    b.store(left, budget, align=8)
    goes_on = b.icmp("ne", now, const("i32", EXITED))
    with when(b, b.op("and", goes_on, b.icmp("slt", left, const("i64", 0))), likely=False):
        _report_endless(b, worker, warp)
        b.ret(const("i32", STOPPED))
    # A warp whose lanes wait for each other made no progress; every other warp did, at least by testing an mbarrier.
    with when(b, b.icmp("ne", now, const("i32", STUCK))):
        # Lanes elsewhere may work while the others test.
        ready = b.op("and", get(b, warp, WARP_LIVE), b.op("xor", get(b, warp, WARP_BLOCKED), const("i32", -1)))
        one_place = b.icmp("eq", _together(b, warp, ready), ready)
        tested = b.op("and", b.op("and", polled, goes_on), one_place)
        repeats = b.icmp("ne", get(b, warp, WARP_REPEATS), const("i32", 0))
        fails = b.select(repeats, const("i32", _TESTED), const("i32", _TRIED))
        how = b.select(tested, fails, const("i32", _WORKED))
        moved.set(b.op("or", moved.get(), how))


def _report(b: Builder, warp: Value, code: int, lanes: Value, detail: Value) -> None:
    """Report where a warp is, not an instruction: the site is the block, as -1 - number.

    This report is the reason why the launch was stopped, so it replaces the last one if the buffer is full.
    """
    worker = get(b, warp, WARP_WORKER)
    last = b.op("sub", get(b, worker, WORKER_REPORT_CAPACITY), const("i32", 1))
    with when(b, b.icmp("ugt", get(b, worker, WORKER_REPORT_COUNT), last), likely=False):
        put(b, worker, WORKER_REPORT_COUNT, last)
    divergent = b.icmp("ne", get(b, warp, WARP_DIVERGENT), const("i32", 0))
    first = b.op("and", b.intrinsic("cttz", "i32", [lanes, const("i1", 0)]), const("i32", LANES - 1))
    place = b.op("shl", b.cast("zext", first, "i64"), const("i64", 2))
    own = b.load("i32", b.offset(b.offset(warp, WARP_PC.at), place), align=4)
    block = b.select(divergent, own, get(b, warp, WARP_RESUME))
    site = b.op("sub", const("i32", -1), block)
    wide = detail if detail.ty == "i64" else b.cast("zext", detail, "i64")
    b.call(symbol("report"), "void", [warp, const("i32", code), site, lanes, wide])


def _report_endless(b: Builder, worker: Value, warp: Value) -> None:
    """Report that the loop budget is exhausted; if CTAs that others may wait for have not started, report how many."""
    grid = get(b, worker, WORKER_GRID)
    waiting = b.op("sub", get(b, grid, GRID_TOTAL), get(b, grid, GRID_NEXT))
    together = b.icmp("ugt", get(b, worker, WORKER_RING), const("i32", 1))
    crowded = b.op("and", together, b.icmp("sgt", waiting, const("i64", 0)))
    with when(b, crowded):
        _report(b, warp, OUT_OF_ROOM, get(b, warp, WARP_LIVE), b.cast("trunc", waiting, "i32"))
    with when(b, b.op("xor", crowded, const("i1", 1))):
        _report(b, warp, OUT_OF_BUDGET, get(b, warp, WARP_LIVE), get(b, warp, WARP_PC))


def _report_waiting(b: Builder, worker: Value) -> None:
    """Report which lanes wait where when no lane can continue; the address is the mask of lanes at a barrier."""
    with count_range(b, get(b, worker, WORKER_WARP_COUNT)) as index:
        warp = warp_of(b, worker, index)
        live = get(b, warp, WARP_LIVE)
        left = Variable(b, live)
        tests = b.op("and", live, b.op("xor", get(b, warp, WARP_BLOCKED), const("i32", -1)))
        polled = b.icmp("ne", get(b, warp, WARP_POLLED), const("i32", 0))
        with when(b, b.op("and", polled, b.icmp("ne", tests, const("i32", 0)))):
            awaited = get(b, warp, WARP_POLLED)
            for what, code in ((POOL, NO_REGISTERS), (CLUSTER, NO_CLUSTER), (GROUP, BEHIND)):
                with when(b, b.icmp("eq", awaited, const("i32", what))):
                    _report(b, warp, code, tests, get(b, warp, WARP_MISSING))
            with when(b, b.icmp("ult", awaited, const("i32", GROUP))):
                _report(b, warp, NO_ARRIVAL, tests, _mbarrier_state(b, warp))
            left.set(b.op("xor", live, tests))
        with loop(b, lambda: b.icmp("ne", left.get(), const("i32", 0))):
            here = _together(b, warp, left.get())
            left.set(b.op("xor", left.get(), here))
            _report(b, warp, DEADLOCK, here, get(b, warp, WARP_BLOCKED))


def _mbarrier_state(b: Builder, warp: Value) -> Value:
    """Return where the mbarrier is that a warp tested, and what its phase misses, in one i64."""
    address = get(b, warp, WARP_POLLED)
    at = b.cast("zext", address, "i64")
    word = b.load("i64", b.offset(get(b, warp, WARP_SHARED), at), align=8)
    missing = b.op("and", word, const("i64", COUNT_MASK))
    pending = b.cast("zext", b.load("i32", pending_at(b, warp, address), align=4), "i64")
    state = b.op("or", at, b.op("shl", missing, const("i64", STATE_MISSING_SHIFT)))
    return b.op("or", state, b.op("shl", pending, const("i64", STATE_BYTES_SHIFT)))


def _together(b: Builder, warp: Value, lanes: Value) -> Value:
    """Return those of some lanes that are where the first of them is."""
    first = b.op("and", b.intrinsic("cttz", "i32", [lanes, const("i1", 0)]), const("i32", LANES - 1))
    pcs = b.load(vec("i32"), b.offset(warp, WARP_PC.at), align=64)
    same = bits(b, b.icmp("eq", pcs, b.splat(b.extract(pcs, first))))
    divergent = b.icmp("ne", get(b, warp, WARP_DIVERGENT), const("i32", 0))
    return b.op("and", lanes, b.select(divergent, same, const("i32", -1)))
