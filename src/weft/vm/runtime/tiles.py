"""Matrix tiles: ldmatrix, movmatrix, and the entry to the wmma loads and stores.

    void      ldmatrix.x{1,2,4}[.trans|.8|.12] (warp, <32 x i32> address, i32 mask, i32 site, ptr out)
    <32 x i32> movmatrix (warp, <32 x i32> a, i32 mask, i32 site)
    void      wmma.{load,store}.…       (see wmma_tiles)
Lanes 8i to 8i + 7 name the rows (16 bytes, in shared memory) of matrix i. Lane 4r + c of register i holds
halves 2c and 2c + 1 of row r: as 128 bytes, a register is its eight rows one after the other, so a load is a
copy and `.trans` a permutation of 64 halves. A row that is out of bounds or misaligned is reported and reads
as 0; a row whose lane is off reads as 0. `out` is aligned to 64 bytes. Of a row of 4- or 6-bit elements only the first
8 or 12 bytes are used; the others are padding.
"""

from weft.core.errors import Unsupported

from ..context import MISALIGNED, OUT_OF_BOUNDS
from ..ir import LANES, Builder, Value, const, vec
from .bounds import Window, object_at, owned, report_lanes, shared_window, straight, without
from .shape import bits, each_lane, function, joined, transposed
from .watch import Instrumentation
from .wmma_tiles import build_wmma

ROW_BYTES = 16
REGISTER_BYTES = 4 * LANES
HALVES = vec("i16", 64)
"""A register as its 64 halves."""


def build_tiles(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`."""
    if name.startswith("ldmatrix."):
        return _ldmatrix(name, watch)
    if name == "movmatrix":
        return [_movmatrix(name)]
    if name.startswith("wmma."):
        return build_wmma(name, watch)
    raise Unsupported(f"runtime function {name}")


def _ldmatrix(name: str, watch: Instrumentation) -> list[Builder]:
    """Load all rows if they are in one array, the usual case; return the function and the one for all other cases.

    The second is separate so that the first needs no room on the stack.
    """
    count = int(name.split(".")[1][1:])
    trans = name.endswith(".trans")
    b = function(
        name,
        "void",
        [("ptr", "warp"), (vec("i32"), "address"), ("i32", "mask"), ("i32", "site"), ("ptr", "out")],
    )
    out, needed = b.param("out"), const("i32", (1 << (8 * count)) - 1)
    window, offsets, named = _named_rows(b, count)
    start, size = object_at(b, "shared", b.cast("zext", b.extract(offsets, 0), "i64"))
    room = b.icmp("uge", size, const("i64", ROW_BYTES))
    last = b.cast("trunc", b.op("sub", size, const("i64", ROW_BYTES)), "i32")
    inside = bits(b, b.icmp("ule", b.op("sub", offsets, b.splat(b.cast("trunc", start, "i32"))), b.splat(last)))
    good = b.op("and", b.op("and", inside, straight(b, offsets, ROW_BYTES)), named)
    all_rows, rest = b.label("all_rows"), b.label("rest")
    b.cbr(b.op("and", room, b.icmp("eq", good, needed)), all_rows, rest, likely=True)
    b.place(all_rows)
    watch.tile_rows(b, offsets, needed, 8 * count, _used(name))
    # The row offsets pass through memory that the rows overwrite: scalar loads cost less than extractions.
    b.store(offsets, out, align=64)
    rows = [_row(b, window.host, b.load("i32", b.offset(out, 4 * row), align=4)) for row in range(8 * count)]
    for matrix in range(count):
        _store_register(b, joined(b, rows[8 * matrix : 8 * matrix + 8]), out, matrix, trans=trans)
    b.ret()
    b.place(rest)
    others = _some_rows(name, count, b, watch)
    b.ret_call(others)
    return [b, others]


def _used(name: str) -> int:
    """Return the bytes of a row that are no padding: the number in `ldmatrix.x4.12`."""
    last = name.split(".")[-1]
    return int(last) if last.isdecimal() else ROW_BYTES


def _named_rows(b: Builder, count: int) -> tuple[Window, Value, Value]:
    """Return the window, the rows' offsets in it, and the lanes that name one."""
    window = shared_window(b)
    offsets = b.op("sub", b.param("address"), const(vec("i32"), window.base))
    return window, offsets, b.op("and", b.param("mask"), const("i32", (1 << (8 * count)) - 1))


def _some_rows(name: str, count: int, b: Builder, watch: Instrumentation) -> Builder:
    """Return the function for rows in several arrays, outside of them, misaligned or not named."""
    b = Builder(f"{b.name}.some", b.result, b.params, b.attributes)
    out = b.param("out")
    window, offsets, named = _named_rows(b, count)
    inside, aligned = owned(b, "shared", offsets, named, ROW_BYTES), straight(b, offsets, ROW_BYTES)
    valid = b.op("and", named, b.op("and", inside, aligned))
    report_lanes(b, OUT_OF_BOUNDS, without(b, named, inside), b.param("address"))
    report_lanes(b, MISALIGNED, without(b, b.op("and", named, inside), aligned), b.param("address"))
    watch.tile_rows(b, offsets, valid, 8 * count, _used(name))
    for matrix in range(count):
        b.store(const(HALVES, 0), b.offset(out, REGISTER_BYTES * matrix), align=64)
    with each_lane(b, valid) as lane:
        at = b.op("shl", b.cast("zext", lane, "i64"), const("i64", 4))
        b.store(_row(b, window.host, b.extract(offsets, lane)), b.offset(out, at), align=ROW_BYTES)
    if name.endswith(".trans"):
        for matrix in range(count):
            register = b.load(HALVES, b.offset(out, REGISTER_BYTES * matrix), align=64)
            _store_register(b, register, out, matrix, trans=True)
    b.ret()
    return b


def _row(b: Builder, host: Value, offset: Value) -> Value:
    return b.load(vec("i16", 8), b.offset(host, b.cast("zext", offset, "i64")), align=ROW_BYTES)


def _store_register(b: Builder, register: Value, out: Value, number: int, *, trans: bool) -> None:
    b.store(transposed(b, register) if trans else register, b.offset(out, REGISTER_BYTES * number), align=64)


def _movmatrix(name: str) -> Builder:
    b = function(name, vec("i32"), [("ptr", "warp"), (vec("i32"), "a"), ("i32", "mask"), ("i32", "site")])
    halves = b.cast("bitcast", b.param("a"), HALVES)
    b.ret(b.cast("bitcast", transposed(b, halves), vec("i32")))
    return b
