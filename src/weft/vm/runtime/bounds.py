"""Windows of device memory and the checks of warp-wide accesses against them."""

from dataclasses import dataclass

from ..context import WARP_ALLOCATIONS, WARP_GLOBAL, WARP_GLOBAL_BYTES, WARP_OWNERS, WARP_SHARED, WARP_SHARED_LIMIT
from ..ir import Builder, Value, const, element, vec
from ..memory import ALIGN, GLOBAL_BASE, SHARED_START
from .shape import Variable, bits, each_lane, function, get, report, symbol, when


@dataclass(frozen=True)
class Window:
    """A linear piece of device memory that the host has at hand. All values are i64 or ptr."""

    host: Value
    """Host address of the first byte."""
    base: int
    """Device address of the first byte, in the window's own space."""
    size: Value


def global_window(b: Builder) -> Window:
    warp = b.param("warp")
    return Window(get(b, warp, WARP_GLOBAL), GLOBAL_BASE, get(b, warp, WARP_GLOBAL_BYTES))


def shared_window(b: Builder) -> Window:
    warp = b.param("warp")
    size = b.op("sub", get(b, warp, WARP_SHARED_LIMIT), const("i64", SHARED_START))
    return Window(b.offset(get(b, warp, WARP_SHARED), SHARED_START), SHARED_START, size)


def allocation(b: Builder, offset: Value) -> tuple[Value, Value]:
    """Start (an arena offset) and size of the allocation at `offset`; size 0 where there is none. All i64."""
    warp = b.param("warp")
    known = b.icmp("ult", offset, get(b, warp, WARP_GLOBAL_BYTES))
    granule = b.select(known, b.op("lshr", offset, const("i64", ALIGN.bit_length() - 1)), const("i64", 0))
    owners = b.offset(get(b, warp, WARP_OWNERS), b.op("shl", granule, const("i64", 2)))
    number = b.cast("zext", b.load("i32", owners, align=4), "i64")
    record = b.offset(get(b, warp, WARP_ALLOCATIONS), b.op("shl", number, const("i64", 4)))
    return b.load("i64", record, align=8), b.load("i64", b.offset(record, 8), align=8)


def owned(b: Builder, offsets: Value, lanes: Value, count: int | Value) -> Value:
    """i32 mask of the `lanes` whose `count` bytes (an i64 if not known) lie in one allocation of global memory.

    The lanes of an instruction nearly always touch one buffer: all are held against the first one's, and only lanes
    that leave it are looked up one by one.
    """
    wide = vec("i64")
    bytes_each = const("i64", count) if isinstance(count, int) else count
    first = b.op("and", b.intrinsic("cttz", "i32", [lanes, const("i1", 0)]), const("i32", 31))
    start, size = allocation(b, b.extract(offsets, first))
    room = b.icmp("uge", size, bytes_each)
    last = b.select(room, b.op("sub", size, bytes_each), const("i64", 0))
    near = bits(b, b.icmp("ule", b.op("sub", offsets, b.splat(start)), b.splat(last)))
    near = b.op("and", b.op("and", near, lanes), b.cast("sext", room, "i32"))
    inside = Variable(b, near)
    rest = without(b, lanes, near)
    with when(b, b.icmp("ne", rest, const("i32", 0)), likely=False):
        more = b.call(symbol(OWNERS), "i32", [b.param("warp"), offsets, rest, bytes_each])
        inside.set(b.op("or", near, more))
    assert offsets.ty == wide
    return inside.get()


OWNERS = "owners"


def build_owners() -> Builder:
    """`i32 owners(warp, <32 x i64> offsets, i32 lanes, i64 count)`: lanes that lie in an allocation, one by one."""
    b = function(OWNERS, "i32", [("ptr", "warp"), (vec("i64"), "offsets"), ("i32", "lanes"), ("i64", "count")])
    found = Variable(b, const("i32", 0))
    with each_lane(b, b.param("lanes")) as lane:
        offset = b.extract(b.param("offsets"), lane)
        start, size = allocation(b, offset)
        room = b.icmp("uge", size, b.param("count"))
        fits = b.icmp("ule", b.op("sub", offset, start), b.op("sub", size, b.param("count")))
        bit = b.op("shl", b.cast("zext", b.op("and", room, fits), "i32"), lane)
        found.set(b.op("or", found.get(), bit))
    b.ret(found.get())
    return b


def fitting(b: Builder, offsets: Value, size: Value, count: int) -> Value:
    """i32 mask of the lanes whose `count` bytes at `offsets` lie below `size` (an i64)."""
    scalar = element(offsets.ty)
    room = b.icmp("uge", size, const("i64", count))
    last = b.select(room, b.op("sub", size, const("i64", count)), const("i64", 0))
    below = bits(b, b.icmp("ule", offsets, b.splat(b.cast("trunc", last, scalar))))
    return b.op("and", below, b.cast("sext", room, "i32"))


def straight(b: Builder, offsets: Value, align: int) -> Value:
    """i32 mask of the lanes whose offset is a multiple of `align`."""
    low = b.op("and", offsets, const(offsets.ty, align - 1))
    return bits(b, b.icmp("eq", low, const(offsets.ty, 0)))


def without(b: Builder, lanes: Value, others: Value) -> Value:
    """Lanes of the first mask that are not in the second."""
    return b.op("and", lanes, b.op("xor", others, const("i32", -1)))


def report_lanes(b: Builder, code: int, lanes: Value, address: Value) -> None:
    """One report for all of `lanes`, if there are any, with the address of the lowest."""
    with when(b, b.icmp("ne", lanes, const("i32", 0)), likely=False):
        first = b.intrinsic("cttz", "i32", [lanes, const("i1", 1)])
        report(b, code, lanes, b.cast("zext", b.extract(address, first), "i64"))


def host_addresses(b: Builder, window: Window, offsets: Value) -> Value:
    """<32 x i64>: host addresses as integers."""
    wide = vec("i64")
    start = b.splat(b.emit("i64", f"ptrtoint ptr {window.host.ref} to i64"))
    return b.op("add", start, b.cast("zext", offsets, wide))
