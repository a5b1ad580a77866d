"""How the lanes of a load or store in one window are moved, after all checks.

A run of all lanes is one access of the CPU. A gather or scatter takes longer than a load or store per element, also for
lanes that are off, so two more cases have separate code: one lane (`if (lane == 0) …`), and all lanes in pieces of
64 bytes, as in the rows of a tile with padding between them.
"""

from ..ir import LANES, Builder, Value, const, vec, vector
from .access_name import Shape
from .shape import bits, joined, unbits, when

PIECE_BYTES = 64


def move_row(b: Builder, shape: Shape, pointer: Value) -> None:
    """Move all 32 lanes in one run of memory."""
    if shape.store:
        b.store(take_row(b, shape), pointer, align=shape.bits // 8)
        b.ret()
    else:
        row = b.load(vec(f"i{shape.bits}", LANES * shape.vector), pointer, align=shape.bits // 8)
        give_row(b, shape, row)


def take_row(b: Builder, shape: Shape) -> Value:
    """Return the elements to store in the order of memory: v registers, each 32 lanes → 32 lanes of v neighbours."""
    if shape.vector == 1:
        return b.param("data")
    flat = b.load(vec(f"i{shape.bits}", LANES * shape.vector), b.param("data"), align=64)
    return b.shuffle(flat, None, [k * LANES + lane for lane in range(LANES) for k in range(shape.vector)])


def give_row(b: Builder, shape: Shape, row: Value) -> None:
    """Return elements that were loaded in the order of memory: the inverse of `take_row`."""
    if shape.vector == 1:
        b.ret(row)
        return
    for k in range(shape.read):
        part = b.shuffle(row, None, [lane * shape.vector + k for lane in range(LANES)])
        b.store(part, b.offset(b.param("data"), k * LANES * shape.bits // 8), align=64)
    b.ret()


def move_lanes(b: Builder, shape: Shape, host: Value, offsets: Value, valid: Value) -> None:
    """Move the `valid` lanes, each at its offset from `host`."""
    with when(b, b.icmp("eq", b.intrinsic("ctpop", "i32", [valid]), const("i32", 1))):
        _move_one(b, shape, host, offsets, valid)
    per_piece = PIECE_BYTES // shape.bytes
    if per_piece < LANES and shape.read == shape.vector:
        leaders = b.shuffle(offsets, None, [lane // per_piece * per_piece for lane in range(LANES)])
        behind = vector(shape.address, (lane % per_piece * shape.bytes for lane in range(LANES)))
        in_pieces = bits(b, b.icmp("eq", b.op("sub", offsets, leaders), behind))
        with when(b, b.icmp("eq", b.op("and", in_pieces, valid), const("i32", -1))):
            starts = [b.extract(offsets, lane) for lane in range(0, LANES, per_piece)]
            _move_pieces(b, shape, [b.offset(host, widened(b, start)) for start in starts])
    _move_each(b, shape, b.offset(host, widened(b, offsets)), valid)


def widened(b: Builder, value: Value) -> Value:
    """Return offsets as i64."""
    return value if "i64" in value.ty else b.cast("zext", value, value.ty.replace("i32", "i64"))


def _move_one(b: Builder, shape: Shape, host: Value, offsets: Value, valid: Value) -> None:
    """Move the only lane of `valid`; the others read 0."""
    scalar, size = f"i{shape.bits}", shape.bits // 8
    lane = b.intrinsic("cttz", "i32", [valid, const("i1", 1)])
    pointer = b.offset(host, widened(b, b.extract(offsets, lane)))
    if shape.store and shape.vector == 1:
        b.store(b.extract(b.param("data"), lane), pointer, align=size)
        b.ret()
        return
    own = b.op("mul", b.cast("zext", lane, "i64"), const("i64", size))
    for k in range(shape.read):
        place = b.offset(pointer, k * size)
        if shape.store:
            row = b.offset(b.param("data"), k * LANES * size)
            b.store(b.load(scalar, b.offset(row, own), align=size), place, align=size)
            continue
        item = b.splat(b.load(scalar, place, align=size))
        value = b.select(unbits(b, valid), item, const(item.ty, 0))
        if shape.vector == 1:
            b.ret(value)
            return
        b.store(value, b.offset(b.param("data"), k * LANES * size), align=64)
    b.ret()


def _move_pieces(b: Builder, shape: Shape, pointers: list[Value]) -> None:
    """Move all lanes; several neighbours have one run of memory."""
    per_piece = PIECE_BYTES * 8 // shape.bits
    piece = vec(f"i{shape.bits}", per_piece)
    if not shape.store:
        give_row(b, shape, joined(b, [b.load(piece, pointer, align=shape.bits // 8) for pointer in pointers]))
        return
    row = take_row(b, shape)
    for number, pointer in enumerate(pointers):
        part = b.shuffle(row, None, range(number * per_piece, (number + 1) * per_piece))
        b.store(part, pointer, align=shape.bits // 8)
    b.ret()


def _move_each(b: Builder, shape: Shape, pointers: Value, valid: Value) -> None:
    """Move lane by lane, through gather and scatter; one pointer vector per vector element."""
    ty, size = vec(f"i{shape.bits}"), shape.bits // 8
    lanes = unbits(b, valid)
    stride = LANES * size
    for k in range(shape.read):
        here = b.emit(pointers.ty, f"getelementptr i8, {pointers.ty} {pointers.ref}, i64 {k * size}") if k else pointers
        if shape.vector == 1:
            if not shape.store:
                b.ret(gather(b, ty, here, lanes, size))
                return
            scatter(b, b.param("data"), here, lanes, size)
        elif shape.store:
            scatter(b, b.load(ty, b.offset(b.param("data"), k * stride), align=64), here, lanes, size)
        else:
            b.store(gather(b, ty, here, lanes, size), b.offset(b.param("data"), k * stride), align=64)
    b.ret()


def gather(b: Builder, ty: str, pointers: Value, lanes: Value, align: int) -> Value:
    """Load an element for each of the lanes; the others get 0."""
    b.declarations.setdefault(
        f"llvm.masked.gather.{_mangle(ty)}.v32p0",
        f"declare {ty} @llvm.masked.gather.{_mangle(ty)}.v32p0(<32 x ptr>, <32 x i1>, {ty})",
    )
    return b.emit(
        ty,
        f"call {ty} @llvm.masked.gather.{_mangle(ty)}.v32p0(<32 x ptr> align {align} {pointers.ref}, "
        f"<32 x i1> {lanes.ref}, {ty} zeroinitializer)",
    )


def scatter(b: Builder, value: Value, pointers: Value, lanes: Value, align: int) -> None:
    """Store an element for each of the lanes, the highest last."""
    b.declarations.setdefault(
        f"llvm.masked.scatter.{_mangle(value.ty)}.v32p0",
        f"declare void @llvm.masked.scatter.{_mangle(value.ty)}.v32p0({value.ty}, <32 x ptr>, <32 x i1>)",
    )
    b.do(
        f"call void @llvm.masked.scatter.{_mangle(value.ty)}.v32p0({value.ty} {value.ref}, "
        f"<32 x ptr> align {align} {pointers.ref}, <32 x i1> {lanes.ref})"
    )


def _mangle(ty: str) -> str:
    return "v32" + ty[ty.index("i") : -1]
