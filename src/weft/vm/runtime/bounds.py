"""Windows of device memory and the checks of warp-wide accesses against them."""

from dataclasses import dataclass

from ..context import WARP_GLOBAL, WARP_GLOBAL_BYTES, WARP_SHARED, WARP_SHARED_LIMIT
from ..ir import Builder, Value, const, element, vec
from ..memory import GLOBAL_BASE, SHARED_START
from .shape import bits, get, report, when


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
