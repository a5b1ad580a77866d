"""Moves the bytes of a bulk copy: rows of the box, in pieces of 16 bytes that every swizzle keeps together.

    void bulk.move.{load, store, add, min, …} (warp, ptr entry, i32 lane, i32 site)
Elements outside the tensor are filled (loads) or left out. Reductions are the atomics of global memory, a piece at a
time. Watchers see 16 bytes at a time, or single bytes at the borders of the tensor, as accesses of the issuing lane.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ..context import WARP_GLOBAL, WARP_SHARED
from ..ir import LANES, Builder, Value, const, vec, vector
from ..memory import GLOBAL_BASE, SHARED_START
from ..tensor_map import ELEMENT_BYTES, FILL_NAN, REDUCTIONS, TYPES
from .bulk_record import (
    DIMS,
    ENTRY_AT,
    ENTRY_COUNT,
    ENTRY_DIM,
    ENTRY_FILL,
    ENTRY_GATHERS,
    ENTRY_ITEM,
    ENTRY_ORIGIN,
    ENTRY_ROWS,
    ENTRY_SHARED,
    ENTRY_STEP,
    ENTRY_STRIDE,
    ENTRY_SWIZZLE,
    ENTRY_TYPE,
)
from .shape import count_range, function, get, symbol, when
from .watch import Access, Instrumentation

PIECE = 16
_PIECE = vec("i8", PIECE)


def build_move(name: str, watch: Instrumentation) -> Builder:
    """Return the function called `name`."""
    operation = name.removeprefix("bulk.move.")
    b = function(name, "void", [("ptr", "warp"), ("ptr", "record"), ("i32", "lane"), ("i32", "site")])
    entry, warp = b.param("record"), b.param("warp")
    near, far = get(b, warp, WARP_SHARED), get(b, warp, WARP_GLOBAL)
    shared, swizzle = get(b, entry, ENTRY_SHARED), get(b, entry, ENTRY_SWIZZLE)
    item = b.cast("zext", get(b, entry, ENTRY_ITEM), "i64")
    row_bytes = b.op("mul", get(b, entry, ENTRY_COUNT), get(b, entry, ENTRY_ITEM))
    pieces = b.op("udiv", row_bytes, const("i32", PIECE))
    first = b.op("mul", b.cast("sext", get(b, entry, ENTRY_AT), "i64"), item)
    width = b.op("mul", b.cast("zext", get(b, entry, ENTRY_DIM), "i64"), item)
    with _rows(b, entry) as (number, start, inside):
        limit = b.select(inside, width, const("i64", 0))
        row = b.op("add", shared, b.op("mul", number, row_bytes))
        with count_range(b, pieces) as piece:
            along = b.op("mul", piece, const("i32", PIECE))
            place = b.op("add", row, along)
            mixed = b.op("and", b.op("lshr", place, const("i32", 7)), swizzle)
            place = b.op("xor", place, b.op("shl", mixed, const("i32", 4)))
            x = b.op("add", first, b.cast("zext", along, "i64"))
            near_at = b.offset(near, b.cast("zext", place, "i64"))
            _move_piece(b, watch, operation, _Piece(near_at, place, far, b.op("add", start, x), x, limit))
    b.ret()
    return b


class _Piece:
    """16 bytes: where they are in shared memory and in the arena, and how far they are in their row of the tensor."""

    def __init__(self, near: Value, place: Value, arena: Value, far: Value, x: Value, limit: Value) -> None:
        self.near, self.place, self.arena, self.far, self.x, self.limit = near, place, arena, far, x, limit


@contextmanager
def _rows(b: Builder, entry: Value) -> Iterator[tuple[Value, Value, Value]]:
    """Yield for each row of the box: its number, the offset of its tensor row in the arena, whether it is inside."""
    counts = [get(b, entry, ENTRY_COUNT, dim) for dim in range(DIMS)]
    total = counts[1]
    for count in counts[2:]:
        total = b.op("mul", total, count)
    with count_range(b, total) as number:
        rest, start, inside = number, get(b, entry, ENTRY_ORIGIN), const("i1", 1)
        for dim in range(1, DIMS):
            index = b.op("urem", rest, counts[dim])
            rest = b.op("udiv", rest, counts[dim])
            step = b.op("mul", index, get(b, entry, ENTRY_STEP, dim))
            at = b.op("add", b.cast("sext", get(b, entry, ENTRY_AT, dim), "i64"), b.cast("zext", step, "i64"))
            if dim == 1:
                slot = b.op("shl", b.cast("zext", b.op("and", index, const("i32", 3)), "i64"), const("i64", 2))
                chosen = b.load("i32", b.offset(b.offset(entry, ENTRY_ROWS.at), slot), align=4)
                gathers = b.icmp("ne", get(b, entry, ENTRY_GATHERS), const("i32", 0))
                at = b.select(gathers, b.cast("sext", chosen, "i64"), at)
            size = b.cast("zext", get(b, entry, ENTRY_DIM, dim), "i64")
            inside = b.op("and", inside, b.icmp("ult", at, size))
            start = b.op("add", start, b.op("mul", at, get(b, entry, ENTRY_STRIDE, dim - 1)))
        yield number, start, inside


def _move_piece(b: Builder, watch: Instrumentation, operation: str, piece: _Piece) -> None:
    end = b.op("add", piece.x, const("i64", PIECE))
    whole = b.op("and", b.icmp("sge", piece.x, const("i64", 0)), b.icmp("sle", end, piece.limit))
    if operation not in ("load", "store"):
        _reduce(b, operation, piece)
        return
    far_at = b.offset(piece.arena, piece.far)
    with when(b, whole, likely=True):
        _watch(b, watch, operation, piece.place, piece.far, PIECE)
        source, target = (far_at, piece.near) if operation == "load" else (piece.near, far_at)
        b.store(b.load(_PIECE, source), target)
    with when(b, b.op("xor", whole, const("i1", 1)), likely=False):
        _border(b, watch, operation, piece)


def _border(b: Builder, watch: Instrumentation, operation: str, piece: _Piece) -> None:
    """Move a piece of which some bytes are outside the tensor, byte by byte."""
    item = b.cast("zext", get(b, b.param("record"), ENTRY_ITEM), "i64")
    nan = b.icmp("eq", get(b, b.param("record"), ENTRY_FILL), const("i32", FILL_NAN))
    with count_range(b, const("i64", PIECE)) as i:
        x = b.op("add", piece.x, i)
        inside = b.op("and", b.icmp("sge", x, const("i64", 0)), b.icmp("slt", x, piece.limit))
        near, far = b.offset(piece.near, i), b.op("add", piece.far, i)
        place = b.op("add", piece.place, b.cast("trunc", i, "i32"))
        with when(b, inside):
            _watch(b, watch, operation, place, far, 1)
            far_at = b.offset(piece.arena, far)
            source, target = (far_at, near) if operation == "load" else (near, far_at)
            b.store(b.load("i8", source), target)
        if operation == "load":
            with when(b, b.op("xor", inside, const("i1", 1))):
                _watch(b, watch, "fill", place, far, 1)
                last = b.icmp("eq", b.op("urem", b.op("add", i, const("i64", 1)), item), const("i64", 0))
                byte = b.select(last, const("i8", 0x7F), const("i8", 0xFF))
                b.store(b.select(nan, byte, const("i8", 0)), near)


def _watch(b: Builder, watch: Instrumentation, operation: str, place: Value, far: Value, size: int) -> None:
    if not watch.sees_bulk:
        return
    lane, loads = b.param("lane"), operation in ("load", "fill")
    offsets = b.splat(b.op("sub", place, const("i32", SHARED_START)))
    if operation != "fill":
        watch.access(b, Access(not loads, "global", size, b.splat(far), lane, contiguous=False, bulk=True))
    watch.access(b, Access(loads, "shared", size, offsets, lane, contiguous=False, copied=loads, bulk=True))


def _reduce(b: Builder, operation: str, piece: _Piece) -> None:
    """Combine the elements of a piece with those in global memory; the lanes from 0 on have one each."""
    after = b.label("reduced")
    kinds = REDUCTIONS[operation].split()
    labels = {TYPES.index(kind): b.label(kind) for kind in kinds}
    b.switch(get(b, b.param("record"), ENTRY_TYPE), after, labels.items())
    for number, label in labels.items():
        b.place(label)
        _reduce_type(b, operation, TYPES[number], ELEMENT_BYTES[number], piece)
        b.br(after)
    b.place(after)


def _reduce_type(b: Builder, operation: str, kind: str, size: int, piece: _Piece) -> None:
    wide, word, count = vec("i64"), f"i{8 * size}", PIECE // size
    lane_bytes = vector("i64", [size * min(lane, count - 1) for lane in range(LANES)])
    x = b.op("add", b.splat(piece.x), lane_bytes)
    inside = b.op("and", b.icmp("sge", x, const(wide, 0)), b.icmp("slt", x, b.splat(piece.limit)))
    mask = b.op("and", b.cast("bitcast", inside, "i32"), const("i32", (1 << count) - 1))
    values = b.shuffle(b.load(vec(word, count), piece.near), None, [min(lane, count - 1) for lane in range(LANES)])
    address = b.op("add", b.splat(b.op("add", piece.far, const("i64", GLOBAL_BASE))), lane_bytes)
    if operation in ("and", "or", "xor"):
        kind = f"b{8 * size}"
    with when(b, b.icmp("ne", mask, const("i32", 0))):
        args = [b.param("warp"), address, mask, b.param("site"), values, values]
        b.call(symbol(f"atom.global.{operation}.{kind}"), vec(word), args)
