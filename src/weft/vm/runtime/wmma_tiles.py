"""wmma loads and stores: a matrix in memory to and from the registers of a fragment.

    void wmma.load.{a,b,c}.{row,col}.<shape>.<space>.<type>
         (warp, i64 address, i32 stride, i32 mask, i32 site, ptr out)
    void wmma.store.d.{row,col}.<shape>.<space>.<type>
         (warp, i64 address, i32 stride, i32 mask, i32 site, ptr data)
`address` is the shared address, or the 64-bit global or generic one; `stride` counts elements. Register i
is at offset 128 i (f64: 256 i) from `out` (aligned to 64 bytes). The fragment layouts are those of
`vm/reference/fragments.py`: the registers of the m16n8 instructions that carry out a wmma, so every register, or
pair of registers of a 32-bit accumulator, is one small block of the matrix. A block is a run of lines in
memory; its registers are one permutation of its lines, or equal to them if memory has the order of the
register.

Before any access these are checked: every line is in the window, address and stride are multiples of 16
bytes (or of the line, or of a lane's part of the matrix, if shorter). A violation makes one report; then a load gives
zeros and a store does nothing. Watchers see one access per block: the 32 lanes share its lines evenly, in memory order
(not the hardware's unknown order).
"""

import re
from dataclasses import dataclass
from functools import cached_property

from weft.core.errors import Unsupported

from ..context import MISALIGNED, OUT_OF_BOUNDS
from ..ir import LANES, Builder, Value, const, vec, vector
from ..memory import SHARED_BASE, WINDOW_BYTES
from .bounds import global_window, object_at, piece_at, shared_window
from .shape import function, joined, report, when
from .watch import Access, Instrumentation, Lines

_ELEMENT_BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}
_SHAPES = {
    "m16n16k16": (16, 16, 16),
    "m32n8k16": (32, 8, 16),
    "m8n32k16": (8, 32, 16),
    "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4),
}
_NAME = re.compile(r"wmma\.(load\.[abc]|store\.d)\.(row|col)\.(m\d+n\d+k\d+)\.(shared|global|generic)\.(\w+)")


@dataclass(frozen=True)
class Block:
    """Eight rows (B: columns) and 16 bytes (f64: 32), or 8 accumulators, of the matrix: one register, or two."""

    row: int
    """First row of the matrix; for B its first column, since B's registers run along n."""
    column: int
    """First column; for B the first k."""
    registers: tuple[int, ...]


@dataclass(frozen=True)
class Tile:
    """The tile that a wmma load or store moves."""

    operand: str
    contiguous: bool
    """Neighbours in memory are neighbours in a register's row."""
    shape: tuple[int, int, int]
    space: str
    kind: str

    @property
    def element_bytes(self) -> int:
        return _ELEMENT_BYTES[self.kind]

    @property
    def register_bytes(self) -> int:
        """Return the bytes of one register of a warp."""
        return LANES * max(self.element_bytes, 4)

    @property
    def extent(self) -> tuple[int, int]:
        """Return rows and columns as registers see them: A m x k, B n x k, C m x n."""
        m, n, k = self.shape
        return {"a": (m, k), "b": (n, k)}.get(self.operand, (m, n))

    @property
    def accumulator(self) -> bool:
        return self.operand in "cd"

    @property
    def block_columns(self) -> int:
        return 8 if self.accumulator else max(16 // self.element_bytes, 4)

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Return the blocks in register order; of an f16 A or B, registers beyond the matrix repeat the first ones."""
        rows, columns = self.extent
        wide = 2 if self.accumulator and self.element_bytes >= 4 else 1
        places: list[tuple[int, int]] = []
        # A and C: 16 rows, then along them, then the halves of 8 rows. B: 8 columns, then along k.
        strip = 8 if self.operand == "b" else min(rows, 16)
        for first in range(0, rows, strip):
            for column in range(0, columns, self.block_columns):
                places += [(row, column) for row in range(first, first + strip, 8)]
        total = 8 if self.kind == "f16" and not self.accumulator else len(places) * wide
        return tuple(
            Block(
                row,
                column,
                tuple(number * wide + i for i in range(wide))
                if wide == 2
                else tuple(range(number, total, len(places))),
            )
            for number, (row, column) in enumerate(places)
        )

    @property
    def lines(self) -> tuple[int, int]:
        """Return the lines of the entire matrix in memory and the bytes of one."""
        rows, columns = self.extent
        count, length = (rows, columns) if self.contiguous else (columns, rows)
        return count, length * self.element_bytes

    @property
    def block_lines(self) -> tuple[int, int]:
        """Return the lines of one block and the bytes of one."""
        count, length = (8, self.block_columns) if self.contiguous else (self.block_columns, 8)
        return count, length * self.element_bytes

    @property
    def alignment(self) -> int:
        """Return what address and stride must be multiples of, in bytes: of no more than a lane holds of the matrix."""
        rows, columns = self.extent
        return min(16, self.lines[1], rows * columns * self.element_bytes // LANES)

    def order(self) -> list[list[int]]:
        """Return, per register of a block, the position in memory order of each of its elements."""
        columns = self.block_columns
        place = [
            [row * columns + column if self.contiguous else column * 8 + row for column in range(columns)]
            for row in range(8)
        ]
        if self.accumulator and self.element_bytes >= 4:
            return [[place[row][column] for row in range(8) for column in range(i, 8, 2)] for i in range(2)]
        return [[item for row in place for item in row]]


def parse_tile(name: str) -> tuple[Tile, bool]:
    """Return the Tile of `wmma.load.a.row.m16n16k16.shared.f16`, and whether it is a store."""
    match = _NAME.fullmatch(name)
    known = match is not None and match[3] in _SHAPES and match[5] in _ELEMENT_BYTES
    if match is None or not known:
        raise Unsupported(f"runtime function {name}")
    operand, layout, shape, space, kind = match.groups()
    accumulator = operand[-1] in "cd"
    if shape == "m16n16k8":
        kinds = "f32" if accumulator else "tf32"
    elif shape == "m8n8k4":
        kinds = "f64"
    else:
        kinds = "f16 f32 s32" if accumulator else "f16 bf16 s8 u8"
    if kind not in kinds.split():
        raise Unsupported(f"runtime function {name}")
    # B's registers run along n, so a column-major B is already in order.
    along = "col" if operand[-1] == "b" else "row"
    return Tile(operand[-1], layout == along, _SHAPES[shape], space, kind), operand == "store.d"


def build_wmma(name: str, watch: Instrumentation) -> list[Builder]:
    """Return the function called `name`, and the one that it jumps to if it must not access the matrix."""
    tile, store = parse_tile(name)
    data = "data" if store else "out"
    params = [
        ("ptr", "warp"),
        ("i64", "address"),
        ("i32", "stride"),
        ("i32", "mask"),
        ("i32", "site"),
        ("ptr", data),
    ]
    b = function(name, "void", params)
    place = _check(b, tile)
    good, bad = b.label("good"), b.label("bad")
    b.cbr(b.op("and", place.inside, place.aligned), good, bad, likely=True)
    b.place(good)
    step = place.step
    pointer = b.offset(place.host, place.offset)
    seen = b.param("address")
    if tile.space != "generic":
        window = shared_window(b) if tile.space == "shared" else global_window(b)
        seen = b.op("sub", seen, const("i64", window.base))
    steps = {0: const("i64", 0), 1: step}
    for block in tile.blocks:
        _announce(b, watch, tile, store, b.op("add", seen, _distance(b, tile, block, step, steps)), step)
        _move(b, tile, store, block, b.offset(pointer, _distance(b, tile, block, step, steps)), step, steps)
    b.ret()
    b.place(bad)
    refused = _refused(b, tile, store)
    b.ret_call(refused)
    return [b, refused]


@dataclass(frozen=True)
class _Place:
    """Where a matrix is, and whether it may be accessed. All values are i64, ptr or i1."""

    host: Value
    end: Value
    """The device address behind the object in which it starts."""
    offset: Value
    """From the object's first byte to that of the matrix."""
    step: Value
    """Bytes from line to line."""
    span: Value
    """Bytes from the first line to the last."""
    first_in: Value
    inside: Value
    aligned: Value


def _check(b: Builder, tile: Tile) -> _Place:
    step = b.op("mul", b.cast("zext", b.param("stride"), "i64"), const("i64", tile.element_bytes))
    host, base, size = _window(b, tile.space)
    offset = b.op("sub", b.param("address"), base)
    lines, line_bytes = tile.lines
    span = b.op("mul", step, const("i64", lines - 1))
    # The sum cannot wrap if the first line is inside, and is used only then.
    room = b.icmp("uge", size, const("i64", line_bytes))
    last = b.op("sub", size, const("i64", line_bytes))
    first_in = b.op("and", room, b.icmp("ule", offset, last))
    inside = b.op("and", first_in, b.icmp("ule", b.op("add", offset, span), last))
    low = b.op("and", b.op("or", offset, step), const("i64", tile.alignment - 1))
    aligned = b.icmp("eq", low, const("i64", 0))
    return _Place(host, b.op("add", base, size), offset, step, span, first_in, inside, aligned)


def _refused(b: Builder, tile: Tile, store: bool) -> Builder:
    """Return the function that reports a matrix outside its array or misaligned; a load gives zeros."""
    b = Builder(f"{b.name}.refused", b.result, b.params, b.attributes)
    place = _check(b, tile)
    with when(b, b.op("xor", place.inside, const("i1", 1))):
        # Not the last line, which may be nearer to another array, but the place where the matrix leaves its own array.
        end = b.intrinsic("umin", "i64", [b.op("add", b.param("address"), place.span), place.end])
        where = b.select(place.first_in, end, b.param("address"))
        report(b, OUT_OF_BOUNDS, b.param("mask"), where)
    with when(b, b.op("and", place.inside, b.op("xor", place.aligned, const("i1", 1)))):
        report(b, MISALIGNED, b.param("mask"), b.param("address"))
    if not store:
        for register in {number for block in tile.blocks for number in block.registers}:
            zero = const(vec("i64" if tile.element_bytes == 8 else "i32"), 0)
            b.store(zero, b.offset(b.param("out"), tile.register_bytes * register), align=64)
    b.ret()
    return b


def _window(b: Builder, space: str) -> tuple[Value, Value, Value]:
    """Return the host address of the first byte that may be touched, its device address, and the number of bytes.

    That is the allocation or the shared array in which the matrix starts.
    """
    if space != "generic":
        return _object(b, space, const("i64", shared_window(b).base if space == "shared" else global_window(b).base))
    into = b.op("sub", b.param("address"), const("i64", SHARED_BASE))
    is_near = b.icmp("ult", into, const("i64", WINDOW_BYTES))
    near = _object(b, "shared", const("i64", SHARED_BASE + shared_window(b).base))
    far = _object(b, "global", const("i64", global_window(b).base))
    host, base, size = (b.select(is_near, here, there) for here, there in zip(near, far, strict=True))
    return host, base, size


def _object(b: Builder, space: str, base: Value) -> tuple[Value, Value, Value]:
    """Return the object at the matrix's address; `base` is the window's first device address."""
    window = shared_window(b) if space == "shared" else global_window(b)
    offset = b.op("sub", b.param("address"), base)
    start, size = object_at(b, space, offset)
    if space == "shared":
        start, size = piece_at(b, offset, start, size)
    return b.offset(window.host, start), b.op("add", base, start), size


def _distance(b: Builder, tile: Tile, block: Block, step: Value, steps: dict[int, Value]) -> Value:
    """Return the bytes from the matrix's first element to the block's."""
    line, within = (block.row, block.column) if tile.contiguous else (block.column, block.row)
    return b.op("add", _times(b, step, line, steps), const("i64", within * tile.element_bytes))


def _times(b: Builder, step: Value, count: int, steps: dict[int, Value]) -> Value:
    """Return `count * step`, computed once."""
    if count not in steps:
        steps[count] = b.op("mul", step, const("i64", count))
    return steps[count]


def _move(
    b: Builder, tile: Tile, store: bool, block: Block, pointer: Value, step: Value, steps: dict[int, Value]
) -> None:
    scalar = f"i{8 * tile.element_bytes}"
    count, line_bytes = tile.block_lines
    length = line_bytes // tile.element_bytes
    lines = [b.offset(pointer, _times(b, step, i, steps)) for i in range(count)]
    order = tile.order()
    register_type = vec(scalar, tile.register_bytes // tile.element_bytes)
    if store:
        data = b.param("data")
        registers = [b.load(register_type, b.offset(data, tile.register_bytes * n), align=64) for n in block.registers]
        flat = joined(b, registers)
        # order[] is a permutation of the block; memory needs its inverse.
        source = [0] * (count * length)
        for place, item in enumerate(item for part in order for item in part):
            source[item] = place
        for i, line in enumerate(lines):
            b.store(b.shuffle(flat, None, source[i * length : (i + 1) * length]), line)
        return
    out = b.param("out")
    flat = joined(b, [b.load(vec(scalar, length), line) for line in lines])
    for part, items in enumerate(order):
        register = flat if items == list(range(len(items))) else b.shuffle(flat, None, items)
        for number in block.registers[part :: len(order)]:
            b.store(register, b.offset(out, tile.register_bytes * number), align=64)


def _announce(b: Builder, watch: Instrumentation, tile: Tile, store: bool, start: Value, step: Value) -> None:
    """Report one access event for a block."""
    if not watch.wants("access"):
        return
    count, line_bytes = tile.block_lines
    share = count * line_bytes // LANES
    per_line = LANES // count
    line = vector("i64", (lane // per_line for lane in range(LANES)))
    within = vector("i64", (lane % per_line * share for lane in range(LANES)))
    offsets = b.op("add", b.op("add", b.splat(start), b.op("mul", line, b.splat(step))), within)
    if tile.space == "shared":
        offsets = b.cast("trunc", offsets, vec("i32"))
    lines = Lines(start, step, count, line_bytes)
    watch.access(b, Access(store, tile.space, share, offsets, b.param("mask"), contiguous=False, lines=lines))
