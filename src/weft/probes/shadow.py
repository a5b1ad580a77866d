"""Shadow memory: one byte of knowledge for each byte of shared memory, read and written a warp's access at a time.

`read_shadow` returns the shadow bytes of an access as a few vectors, in the cheapest way its pattern allows: one run,
lines, a gather. Inactive lanes show as `neutral`. Bytes that appear twice have the same value, so writing back a
function of the old bytes is well defined.
"""

from collections.abc import Callable
from dataclasses import dataclass

from weft.vm.ir import LANES, Builder, Value, bits_of, const, element, lanes_of, vec
from weft.vm.runtime.shape import each_lane, joined, unbits

from .shared_probe import ROW_BYTES, Touch

PIECE = 128
"""Most bytes of a run in one vector."""
GROUP = 64
"""Lines are joined up to this many bytes."""


@dataclass(frozen=True)
class Piece:
    """Some shadow bytes, <N x i8>, and how to replace them."""

    value: Value
    put: Callable[[Value], None]


def read_shadow(b: Builder, shadow: Value, touch: Touch, neutral: Value) -> list[Piece]:
    """Return the shadow bytes of an access. `neutral` (i8) stands for inactive lanes."""
    if touch.contiguous:
        start = b.offset(shadow, b.cast("zext", b.extract(touch.offsets, 0), "i64"))
        return _run(b, start, LANES * touch.bytes)
    if touch.uniform and touch.bytes > 1:
        start = b.offset(shadow, b.cast("zext", b.extract(touch.offsets, 0), "i64"))
        return _run(b, start, touch.bytes)
    if touch.lines is not None:
        lines = touch.lines
        starts = [lines.start]
        for _ in range(lines.count - 1):
            starts.append(b.op("add", starts[-1], lines.step))
        return _lines(b, [b.offset(shadow, start) for start in starts], lines.bytes)
    return _lanes(b, shadow, touch, neutral)


def read_rows(b: Builder, shadow: Value, touch: Touch) -> list[Piece]:
    """Return the rows of an ldmatrix in which every lane that should give a row's address does."""
    slot = b.alloca(vec("i32"))
    b.store(touch.offsets, slot, align=64)
    starts = [b.load("i32", b.offset(slot, 4 * row), align=4) for row in range(touch.rows)]
    return _lines(b, [b.offset(shadow, b.cast("zext", start, "i64")) for start in starts], ROW_BYTES)


def any_of(b: Builder, flags: Value) -> Value:
    """Whether any of <N x i1> is set."""
    width = f"i{lanes_of(flags.ty)}"
    return b.icmp("ne", b.cast("bitcast", flags, width), const(width, 0))


def either(b: Builder, values: list[Value], operation: str) -> Value:
    """Combine all values by an operation."""
    result = values[0]
    for value in values[1:]:
        result = b.op(operation, result, value)
    return result


def _run(b: Builder, start: Value, size: int) -> list[Piece]:
    step = min(size, PIECE)
    places = [b.offset(start, at) for at in range(0, size, step)]
    return [Piece(_load(b, step, place), lambda new, place=place: b.store(new, place)) for place in places]  # type: ignore[misc]


def _load(b: Builder, size: int, place: Value) -> Value:
    return b.load(f"<{size} x i8>", place)


def _lines(b: Builder, starts: list[Value], size: int) -> list[Piece]:
    per_group = max(GROUP // size, 1)
    pieces = []
    for first in range(0, len(starts), per_group):
        group = starts[first : first + per_group]
        pieces.append(Piece(joined(b, [_load(b, size, start) for start in group]), _put_lines(b, group, size)))
    return pieces


def _put_lines(b: Builder, starts: list[Value], size: int) -> Callable[[Value], None]:
    def put(new: Value) -> None:
        for number, start in enumerate(starts):
            b.store(b.shuffle(new, None, range(number * size, (number + 1) * size)), start)

    return put


def _lanes(b: Builder, shadow: Value, touch: Touch, neutral: Value) -> list[Piece]:
    if touch.bytes < 4:
        return [_narrow(b, shadow, touch, neutral)]
    width = min(touch.bytes, 8)
    bytes_type, words = f"<{LANES * width} x i8>", vec(f"i{8 * width}")
    off = b.cast("bitcast", b.splat(neutral, LANES * width), words)
    on = unbits(b, touch.lanes)
    pieces = []
    for at in range(0, touch.bytes, width):
        places = b.offset(b.offset(shadow, at), b.cast("zext", touch.offsets, vec("i64")))
        value = b.cast("bitcast", gather(b, places, on, off), bytes_type)
        pieces.append(Piece(value, _put_words(b, places, on, words)))
    return pieces


def _put_words(b: Builder, places: Value, on: Value, words: str) -> Callable[[Value], None]:
    return lambda new: scatter(b, b.cast("bitcast", new, words), places, on)


def _narrow(b: Builder, shadow: Value, touch: Touch, neutral: Value) -> Piece:
    """One or two bytes per lane: LLVM has no gather of these, so their words are gathered; written lane by lane."""
    words, width = vec("i32"), touch.bytes
    aligned = b.op("and", touch.offsets, const(words, -4))
    shift = b.op("shl", b.op("and", touch.offsets, const(words, 3)), const(words, 3))
    places = b.offset(shadow, b.cast("zext", aligned, vec("i64")))
    on = unbits(b, touch.lanes)
    gathered = b.op("lshr", gather(b, places, on, const(words, 0)), shift)
    narrow = b.cast("trunc", gathered, vec(f"i{8 * width}"))
    off = b.cast("bitcast", b.splat(neutral, LANES * width), narrow.ty)
    value = b.cast("bitcast", b.select(on, narrow, off), f"<{LANES * width} x i8>")

    def put(new: Value) -> None:
        source, target = b.alloca(new.ty), b.alloca(words)
        b.store(new, source, align=64)
        b.store(touch.offsets, target, align=64)
        with each_lane(b, touch.lanes) as lane:
            index = b.cast("zext", lane, "i64")
            item = b.load(f"i{8 * width}", b.offset(source, b.op("mul", index, const("i64", width))))
            at = b.load("i32", b.offset(target, b.op("shl", index, const("i64", 2))), align=4)
            b.store(item, b.offset(shadow, b.cast("zext", at, "i64")))

    return Piece(value, put)


def gather(b: Builder, places: Value, on: Value, off: Value) -> Value:
    """The words at <32 x ptr>; `off` in inactive lanes."""
    name = f"llvm.masked.gather.v32{off.ty[6:-1]}.v32p0"
    b.declarations.setdefault(name, f"declare {off.ty} @{name}(<32 x ptr>, <32 x i1>, {off.ty})")
    args = f"<32 x ptr> align {_align(off)} {places.ref}, <32 x i1> {on.ref}, {off.ty} {off.ref}"
    return b.emit(off.ty, f"call {off.ty} @{name}({args})")


def scatter(b: Builder, value: Value, places: Value, on: Value) -> None:
    """Write words to <32 x ptr> in the active lanes."""
    name = f"llvm.masked.scatter.v32{value.ty[6:-1]}.v32p0"
    b.declarations.setdefault(name, f"declare void @{name}({value.ty}, <32 x ptr>, <32 x i1>)")
    where = f"<32 x ptr> align {_align(value)} {places.ref}"
    b.do(f"call void @{name}({value.ty} {value.ref}, {where}, <32 x i1> {on.ref})")


def _align(words: Value) -> int:
    return bits_of(element(words.ty)) // 8
