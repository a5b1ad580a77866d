"""A second shadow, 16 bits per byte of shared memory: which lane of the owning warp accessed it since the last sync.

    bits 0-4   the lane; bit 5: several lanes, or the lane is unknown
    bit 6      written
    bits 7-15  the warp's epoch; it counts the warp's synchronisations, so an entry of another epoch is no longer valid

The first shadow (`racecheck.py`) holds the warp. Entries are read and written in the same pieces and order.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from weft.vm.ir import LANES, Builder, Value, const, lanes_of, vec, vector
from weft.vm.runtime.shape import bits, each_lane, joined, unbits

from .shadow import GROUP, PIECE, gather, scatter
from .shared_probe import ROW_BYTES, Touch

SEVERAL, WRITTEN, EPOCH_SHIFT, LAST_EPOCH = 0x20, 0x40, 7, 511


@dataclass(frozen=True)
class Entries:
    """Some entries, <N x i16>, the lane that accesses each (bit 5 if it is unknown), and how to replace them."""

    value: Value
    lane: Value
    put: Callable[[Value], None]
    put_lanes: Callable[[Value, Value], None] | None = None
    """Where two lanes may have the same place: replaces the entries of an i32 mask of lanes."""


def read_entries(b: Builder, shadow: Value, touch: Touch, epoch: Value, *, whole: bool) -> list[Entries]:
    """Return the entries of an access. `epoch` (i16) is the warp's; `whole`: all rows of an ldmatrix are given."""
    if touch.contiguous:
        return _run(b, _place(b, shadow, b.extract(touch.offsets, 0)), LANES * touch.bytes, touch.bytes)
    if touch.uniform and touch.bytes > 1:
        return _uniform(b, shadow, touch)
    if touch.lines is not None:
        lines = touch.lines
        whose = [at // touch.bytes for at in range(lines.count * lines.bytes)]
        starts = [lines.start]
        for _ in range(lines.count - 1):
            starts.append(b.op("add", starts[-1], lines.step))
        places = [b.offset(shadow, b.op("shl", start, const("i64", 1))) for start in starts]
        apart = b.icmp("uge", lines.step, const("i64", lines.bytes))
        return [replace(e, lane=_if(b, apart, e.lane)) for e in _lines(b, places, lines.bytes, whose)]
    if touch.rows and whole:
        slot = b.alloca(vec("i32"))
        b.store(touch.offsets, slot, align=64)
        starts = [b.load("i32", b.offset(slot, 4 * row), align=4) for row in range(touch.rows)]
        places = [_place(b, shadow, start) for start in starts]
        return _lines(b, places, ROW_BYTES, [SEVERAL] * (touch.rows * ROW_BYTES))
    return _scattered(b, shadow, touch, epoch)


def _if(b: Builder, known: Value, lane: Value) -> Value:
    """The lanes if they are known, else "unknown"."""
    return b.select(known, lane, const(lane.ty, SEVERAL))


def lanes_with(b: Builder, flags: Value) -> Value:
    """i32 mask of the lanes with any of their flags set, from <32·w x i1>."""
    width = lanes_of(flags.ty) // LANES
    if width == 1:
        return bits(b, flags)
    words = b.cast("bitcast", b.cast("sext", flags, f"<{LANES * width} x i8>"), vec(f"i{8 * width}"))
    return bits(b, b.icmp("ne", words, const(words.ty, 0)))


def _place(b: Builder, shadow: Value, offset: Value) -> Value:
    return b.offset(shadow, b.op("shl", b.cast("zext", offset, "i64"), const("i64", 1)))


def _run(b: Builder, start: Value, count: int, per_lane: int) -> list[Entries]:
    step = min(count, PIECE)
    found = []
    for at in range(0, count, step):
        place = b.offset(start, 2 * at)
        lanes = vector("i16", ((at + i) // per_lane for i in range(step)))
        found.append(Entries(b.load(f"<{step} x i16>", place), lanes, _store_at(b, place)))
    return found


def _store_at(b: Builder, place: Value) -> Callable[[Value], None]:
    return lambda new: b.store(new, place)


def _uniform(b: Builder, shadow: Value, touch: Touch) -> list[Entries]:
    """The entries where all lanes access one place: the lane is known if there is only one."""
    place = _place(b, shadow, b.extract(touch.offsets, 0))
    rest = b.op("and", touch.lanes, b.op("sub", touch.lanes, const("i32", 1)))
    lane = b.op("and", b.intrinsic("cttz", "i32", [touch.lanes, const("i1", 0)]), const("i32", LANES - 1))
    which = b.select(b.icmp("eq", rest, const("i32", 0)), lane, const("i32", SEVERAL))
    lanes = b.splat(b.cast("trunc", which, "i16"), touch.bytes)
    return [Entries(b.load(f"<{touch.bytes} x i16>", place), lanes, _store_at(b, place))]


def _lines(b: Builder, places: list[Value], size: int, lanes: list[int]) -> list[Entries]:
    per_group = max(GROUP // size, 1)
    found = []
    for first in range(0, len(places), per_group):
        group = places[first : first + per_group]
        value = joined(b, [b.load(f"<{size} x i16>", place) for place in group])
        own = vector("i16", lanes[first * size : (first + len(group)) * size])
        found.append(Entries(value, own, _put_lines(b, group, size)))
    return found


def _put_lines(b: Builder, places: list[Value], size: int) -> Callable[[Value], None]:
    def put(new: Value) -> None:
        for number, place in enumerate(places):
            b.store(b.shuffle(new, None, range(number * size, (number + 1) * size)), place)

    return put


def _scattered(b: Builder, shadow: Value, touch: Touch, epoch: Value) -> list[Entries]:
    """The entries lane by lane. Inactive lanes look as if this access had been recorded already."""
    on = unbits(b, touch.lanes)
    width = min(touch.bytes, 8)
    code = [SEVERAL if touch.rows else i // width for i in range(LANES * width)]
    lanes = vector("i16", code)
    settled = b.op("or", b.op("or", lanes, b.splat(epoch, LANES * width)), const(lanes.ty, WRITTEN))
    twice = b.op("shl", b.cast("zext", touch.offsets, vec("i64")), const(vec("i64"), 1))
    if touch.bytes < 4:
        return [_narrow(b, shadow, touch, settled, lanes)]
    found = []
    for at in range(0, touch.bytes, width):
        halves = width // 4
        words = [b.offset(b.offset(shadow, 2 * at + 8 * half), twice) for half in range(halves)]
        off = _split(b, settled, halves)
        parts = [gather(b, place, on, fill) for place, fill in zip(words, off, strict=True)]
        put = _put_words(b, words, halves)
        found.append(Entries(_merge(b, parts, lanes.ty), lanes, partial(put, touch.lanes), _swapped(put)))
    return found


def _split(b: Builder, value: Value, halves: int) -> list[Value]:
    """<32·4h x i16> → h vectors of <32 x i64>, each with the h-th four entries of every lane."""
    words = b.cast("bitcast", value, vec("i64", LANES * halves))
    if halves == 1:
        return [words]
    return [b.shuffle(words, None, range(half, LANES * halves, halves)) for half in range(halves)]


def _merge(b: Builder, parts: list[Value], ty: str) -> Value:
    if len(parts) == 1:
        return b.cast("bitcast", parts[0], ty)
    mixed = b.shuffle(parts[0], parts[1], [lane + LANES * half for lane in range(LANES) for half in range(2)])
    return b.cast("bitcast", mixed, ty)


def _put_words(b: Builder, places: list[Value], halves: int) -> Callable[[Value, Value], None]:
    def put(lanes: Value, new: Value) -> None:
        on = unbits(b, lanes)
        for place, part in zip(places, _split(b, new, halves), strict=True):
            scatter(b, part, place, on)

    return put


def _swapped(put: Callable[[Value, Value], None]) -> Callable[[Value, Value], None]:
    return lambda new, lanes: put(lanes, new)


def _narrow(b: Builder, shadow: Value, touch: Touch, settled: Value, lanes: Value) -> Entries:
    """The entries of one or two bytes per lane, through memory."""
    scalar = f"i{16 * touch.bytes}"
    source, target = b.alloca(settled.ty), b.alloca(vec("i32"))
    b.store(settled, source, align=64)
    b.store(touch.offsets, target, align=64)

    def each(lanes: Value, move: Callable[[Value, Value], None]) -> None:
        with each_lane(b, lanes) as lane:
            index = b.cast("zext", lane, "i64")
            at = b.load("i32", b.offset(target, b.op("shl", index, const("i64", 2))), align=4)
            item = b.offset(source, b.op("mul", index, const("i64", 2 * touch.bytes)))
            move(_place(b, shadow, at), item)

    each(touch.lanes, lambda place, item: b.store(b.load(scalar, place), item))
    value = b.load(settled.ty, source, align=64)

    def put(lanes: Value, new: Value) -> None:
        b.store(new, source, align=64)
        each(lanes, lambda place, item: b.store(b.load(scalar, item), place))

    return Entries(value, lanes, partial(put, touch.lanes), _swapped(put))
