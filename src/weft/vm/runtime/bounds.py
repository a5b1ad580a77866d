"""Windows of device memory and the checks of warp-wide accesses against them."""

from dataclasses import dataclass

from ..context import (
    WARP_ALLOCATIONS,
    WARP_GLOBAL,
    WARP_GLOBAL_BYTES,
    WARP_OWNERS,
    WARP_SHARED,
    WARP_SHARED_LIMIT,
    WARP_SHARED_OBJECTS,
    WARP_SHARED_OWNERS,
    Field,
)
from ..ir import Builder, Value, const, element, vec
from ..last_word import WORD_BYTES
from ..memory import ALIGN, GLOBAL_BASE, SHARED_GRANULE, SHARED_START
from .shape import Variable, bits, count_range, each_lane, function, get, report, symbol, when


@dataclass(frozen=True)
class Window:
    """A linear piece of device memory that is mapped in the host. All values are i64 or ptr."""

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


@dataclass(frozen=True)
class Objects:
    """The objects of a space that may be touched: a map from granules to objects, and the place of each object."""

    space: str
    owners: Field
    """u32 per granule: the number of the object there, 0 for none."""
    extents: Field
    """Per object: i64 offset in the window, i64 size. Number 0 has size 0; its offset (shared memory): their number."""
    granule_bytes: int


OBJECTS = {
    "global": Objects("global", WARP_OWNERS, WARP_ALLOCATIONS, ALIGN),
    "shared": Objects("shared", WARP_SHARED_OWNERS, WARP_SHARED_OBJECTS, SHARED_GRANULE),
}


def object_at(b: Builder, space: str, offset: Value) -> tuple[Value, Value]:
    """Return offset and size of the allocation or shared array at `offset` in its window; size 0 if there is none.

    All values are i64; an `offset` beyond the window is in no object.
    """
    objects, warp = OBJECTS[space], b.param("warp")
    window = global_window(b) if space == "global" else shared_window(b)
    known = b.icmp("ult", offset, window.size)
    granule = b.op("lshr", offset, const("i64", objects.granule_bytes.bit_length() - 1))
    owner = b.offset(
        get(b, warp, objects.owners), b.op("shl", b.select(known, granule, const("i64", 0)), const("i64", 2))
    )
    number = b.select(known, b.load("i32", owner, align=4), const("i32", 0))
    record = b.offset(get(b, warp, objects.extents), b.op("shl", b.cast("zext", number, "i64"), const("i64", 4)))
    return b.load("i64", record, align=8), b.load("i64", b.offset(record, 8), align=8)


def owned(b: Builder, space: str, offsets: Value, lanes: Value, count: int, *, last_word: bool = False) -> Value:
    """Return the i32 mask of the `lanes` whose `count` bytes are in one allocation or shared array.

    With `last_word` a buffer's last word is in it completely.

    The lanes of an instruction nearly always touch one object: all are compared with the first lane's object, and only
    lanes outside it are looked up one by one.
    """
    scalar = element(offsets.ty)
    first = b.op("and", b.intrinsic("cttz", "i32", [lanes, const("i1", 0)]), const("i32", 31))
    start, size = object_at(b, space, b.cast("zext", b.extract(offsets, first), "i64"))
    if last_word:
        size = _in_words(b, size)
    room = b.icmp("uge", size, const("i64", count))
    last = b.select(room, b.op("sub", size, const("i64", count)), const("i64", 0))
    start, last = b.cast("trunc", start, scalar), b.cast("trunc", last, scalar)
    near = bits(b, b.icmp("ule", b.op("sub", offsets, b.splat(start)), b.splat(last)))
    near = b.op("and", b.op("and", near, lanes), b.cast("sext", room, "i32"))
    inside = Variable(b, near)
    rest = without(b, lanes, near)
    with when(b, b.icmp("ne", rest, const("i32", 0)), likely=False):
        args = [b.param("warp"), b.cast("zext", offsets, vec("i64")), rest, const("i64", count)]
        inside.set(b.op("or", near, b.call(symbol(f"{OWNERS}.{space}{'.' + WORDS if last_word else ''}"), "i32", args)))
    return inside.get()


def _in_words(b: Builder, size: Value) -> Value:
    """Return a size in bytes (i64), rounded up to words; buffers start at words."""
    return b.op("and", b.op("add", size, const("i64", WORD_BYTES - 1)), const("i64", -WORD_BYTES))


OWNERS = "owners"
WORDS = "words"
PIECE = "piece"


def piece_at(b: Builder, offset: Value, start: Value, size: Value) -> tuple[Value, Value]:
    """Return what `object_at` found in shared memory, or, if it found nothing, a piece whose granule has several."""
    piece = Variable(b, start)
    length = Variable(b, size)
    with when(b, b.icmp("eq", size, const("i64", 0)), likely=False):
        record = b.call(symbol(PIECE), "ptr", [b.param("warp"), offset])
        piece.set(b.load("i64", record, align=8))
        length.set(b.load("i64", b.offset(record, 8), align=8))
    return piece.get(), length.get()


def build_piece(name: str) -> Builder:
    """Return `ptr piece(warp, i64 offset)`: the record of the shared object there, by a search; else record 0."""
    b = function(name, "ptr", [("ptr", "warp"), ("i64", "offset")])
    records = get(b, b.param("warp"), WARP_SHARED_OBJECTS)
    with count_range(b, b.load("i64", records, align=8)) as number:
        record = b.offset(records, b.op("shl", b.op("add", number, const("i64", 1)), const("i64", 4)))
        start, size = b.load("i64", record, align=8), b.load("i64", b.offset(record, 8), align=8)
        with when(b, b.icmp("ult", b.op("sub", b.param("offset"), start), size)):
            b.ret(record)
    b.ret(records)
    return b


def build_owners(name: str) -> Builder:
    """Return `i32 owners.<space>(warp, <32 x i64> offsets, i32 lanes, i64 count)`: lanes inside an object.

    `owners.<space>.words` takes objects with their last words completely.
    """
    space, _, words = name.partition(".")[2].partition(".")
    b = function(name, "i32", [("ptr", "warp"), (vec("i64"), "offsets"), ("i32", "lanes"), ("i64", "count")])
    found = Variable(b, const("i32", 0))
    with each_lane(b, b.param("lanes")) as lane:
        offset = b.extract(b.param("offsets"), lane)
        start, size = object_at(b, space, offset)
        if space == "shared":
            start, size = piece_at(b, offset, start, size)
        if words:
            size = _in_words(b, size)
        room = b.icmp("uge", size, b.param("count"))
        fits = b.icmp("ule", b.op("sub", offset, start), b.op("sub", size, b.param("count")))
        bit = b.op("shl", b.cast("zext", b.op("and", room, fits), "i32"), lane)
        found.set(b.op("or", found.get(), bit))
    b.ret(found.get())
    return b


def straight(b: Builder, offsets: Value, align: int) -> Value:
    """Return the i32 mask of the lanes whose offset is a multiple of `align`."""
    low = b.op("and", offsets, const(offsets.ty, align - 1))
    return bits(b, b.icmp("eq", low, const(offsets.ty, 0)))


def without(b: Builder, lanes: Value, others: Value) -> Value:
    """Return the lanes of the first mask that are not in the second."""
    return b.op("and", lanes, b.op("xor", others, const("i32", -1)))


def report_lanes(b: Builder, code: int, lanes: Value, address: Value) -> None:
    """Make one report for all of `lanes`, if there are any, with the address of the lowest."""
    with when(b, b.icmp("ne", lanes, const("i32", 0)), likely=False):
        first = b.intrinsic("cttz", "i32", [lanes, const("i1", 1)])
        report(b, code, lanes, b.cast("zext", b.extract(address, first), "i64"))


def host_addresses(b: Builder, window: Window, offsets: Value) -> Value:
    """Return host addresses as integers, <32 x i64>."""
    wide = vec("i64")
    start = b.splat(b.emit("i64", f"ptrtoint ptr {window.host.ref} to i64"))
    return b.op("add", start, b.cast("zext", offsets, wide))
