"""The registers of a CTA are a pool that `setmaxnreg` distributes: what all threads have at the start, and no more.

    i32  registers.inc(warp, i32 count, i64 key, i32 lanes, i32 site)   whether there are enough; they are taken then
    void registers.dec(warp, i32 count, i64 key, i32 lanes, i32 site)

A warpgroup takes registers as a whole, when the first of its warps asks for them, so that two groups cannot wait for
each other with half of what they need. Registers of warps that have exited are free. Without a known number of
registers at the start, there are always enough.
"""

from ..context import (
    POOL,
    WARP_ID,
    WARP_LIVE,
    WARP_REGISTERS,
    WARP_WORKER,
    WORKER_FRUITLESS,
    WORKER_REGISTERS,
    WORKER_WARP_COUNT,
    WRONG_REGISTERS,
)
from ..ir import LANES, Builder, Value, const
from ..wgmma_kind import WARPS
from .barriers import warp_of
from .shape import Variable, count_range, function, get, put, report, symbol, when
from .waiting import give_way
from .watch import Instrumentation

_PARAMS = [("ptr", "warp"), ("i32", "count"), ("i64", "key"), ("i32", "lanes"), ("i32", "site")]


def build_registers(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    return [_inc(name)] if name.endswith("inc") else [_dec(name)]


def _inc(name: str) -> Builder:
    b = function(name, "i32", _PARAMS)
    warp, count = b.param("warp"), b.param("count")
    worker = get(b, warp, WARP_WORKER)
    warps, each = get(b, worker, WORKER_WARP_COUNT), get(b, worker, WORKER_REGISTERS)
    with when(b, b.icmp("ne", each, const("i32", 0))):
        used, needed = Variable(b, const("i32", 0)), Variable(b, const("i32", 0))
        with count_range(b, warps) as number:
            other = warp_of(b, worker, number)
            with when(b, b.icmp("ne", get(b, other, WARP_LIVE), const("i32", 0))):
                has = get(b, other, WARP_REGISTERS)
                used.set(b.op("add", used.get(), has))
                more = b.select(_of_this_group(b, number), b.op("sub", count, has), const("i32", 0))
                needed.set(b.op("add", needed.get(), more))
        free = b.op("sub", b.op("mul", warps, each), used.get())
        with when(b, b.icmp("sgt", needed.get(), free)):
            threads = [b.op("mul", value, const("i32", LANES)) for value in (needed.get(), free)]
            give_way(b, POOL, *threads)
            b.ret(const("i32", 0))
        _check(b, b.icmp("ult", count, get(b, warp, WARP_REGISTERS)))
        with count_range(b, warps) as number, when(b, _of_this_group(b, number)):
            put(b, warp_of(b, worker, number), WARP_REGISTERS, count)
        put(b, worker, WORKER_FRUITLESS, const("i32", 0))
    _take_step(b)
    b.ret(const("i32", -1))
    return b


def _dec(name: str) -> Builder:
    b = function(name, "void", _PARAMS)
    warp, count = b.param("warp"), b.param("count")
    worker = get(b, warp, WARP_WORKER)
    with when(b, b.icmp("ne", get(b, worker, WORKER_REGISTERS), const("i32", 0))):
        _check(b, b.icmp("ugt", count, get(b, warp, WARP_REGISTERS)))
        put(b, warp, WARP_REGISTERS, count)
        put(b, worker, WORKER_FRUITLESS, const("i32", 0))
    _take_step(b)
    b.ret()
    return b


def _of_this_group(b: Builder, number: Value) -> Value:
    mine = get(b, b.param("warp"), WARP_ID)
    return b.icmp("ult", b.op("xor", mine, number), const("i32", WARPS))


def _check(b: Builder, wrong: Value) -> None:
    """Report a count in the wrong direction."""
    with when(b, wrong, likely=False):
        has = b.cast("zext", get(b, b.param("warp"), WARP_REGISTERS), "i64")
        asked = b.op("shl", b.cast("zext", b.param("count"), "i64"), const("i64", 32))
        report(b, WRONG_REGISTERS, b.param("lanes"), b.op("or", asked, has))


def _take_step(b: Builder) -> None:
    b.call(symbol("warpgroup.step"), "void", [b.param(name) for name in ("warp", "key", "lanes", "site")])
