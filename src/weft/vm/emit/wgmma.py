"""Products of a warpgroup: tiles are loaded as by ldmatrix, then multiplied as by mma.

An operand tile is pieces of 16 bytes; eight of them, one of each of eight rows (of B: columns), are a register of the
fragment of m16n8. If rows follow each other instead of k, a piece is eight rows of one k; the register is transposed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from weft.core.errors import Unsupported
from weft.ptx.module import Imm, Instruction, Vec

from ..context import WARP_ID
from ..ir import LANES, Value, const, vec, vector
from ..mma_kind import WGMMA
from ..runtime.shape import get
from ..wgmma_kind import BASE_OFFSET_SHIFT, INVALID_ADDRESS, WARPS, Wgmma, wgmma_of
from .kernel_contract import KernelContract
from .matrix import ROW, mma_name, pass_registers
from .tensorcore import MOST_SETS

_I32 = vec("i32")
STEP_FACTOR = 0x100000001B3
"""Combines what a step consists of, as the hash FNV does."""
_SIGNS = {"f16": 0x80008000, "bf16": 0x80008000, "tf32": 0x80000000, "e4m3": 0x80808080, "e5m2": 0x80808080}


@dataclass(frozen=True)
class _Descriptor:
    """The fields of a descriptor, bytes as i32."""

    start: Value
    leading: Value
    stride: Value
    mode: Value
    valid: Value
    """i1: all lanes have this descriptor, and its base offset is 0."""


def wgmma(e: KernelContract, ins: Instruction) -> None:
    """Write a product. It is complete when it is issued, in its warp: a wait is for the other warps of the group.

    Only the race checker needs commits, and waits that are over.
    """
    if ins.facts.orders == "commit":
        e.runtime("products.commit", "void", [e.active(), e.site()])
    elif ins.facts.orders == "wait":
        pending = ins.operand("count")
        if not isinstance(pending, Imm):
            raise Unsupported(f"{ins.opcode} with a count in a register", ins.line)
        b, over, after = e.b, e.b.label("over"), e.b.label("after")
        granted = e.runtime("warpgroup.together", "i32", [])
        e.dst(ins, e.mask_vector(granted), "p")
        b.cbr(b.icmp("ne", granted, const("i32", 0)), over, after, likely=True)
        b.place(over)
        e.runtime("products.wait", "void", [e.active(), const("i32", pending.value)])
        b.br(after)
        b.place(after)
    if not ins.has("mma_async"):
        return
    how = wgmma_of(ins)
    _take_step(e, ins, how)
    a = _a_registers(e, ins, how)
    if how.negate:
        sign = const(_I32, _SIGNS[how.kind.a_type])
        a = [e.b.op("xor", value, sign) for value in a]
    room = pass_registers(e, "mma.a", a)
    descriptor = _descriptor(e, ins, "b")
    target = ins.operand("d")
    assert isinstance(target, Vec)
    keep = e.lift(e.src(ins, "go"))
    for first in range(0, how.blocks, MOST_SETS):
        count = min(MOST_SETS, how.blocks - first)
        _multiply(e, ins, how, room, descriptor, keep, range(first, first + count))


def _take_step(e: KernelContract, ins: Instruction, how: Wgmma) -> None:
    """Tell the runtime what all warps of the group must have in common: the instruction and its descriptors."""
    b = e.b
    key = b.cast("zext", e.site(), "i64")
    for name in ("b",) if how.in_registers else ("a", "b"):
        given = b.extract(_lanes(e, ins, name), 0)
        key = b.op("add", b.op("mul", key, const("i64", STEP_FACTOR)), given)
    e.runtime("warpgroup.step", "void", [key, e.active(), e.site()])


def _multiply(
    e: KernelContract, ins: Instruction, how: Wgmma, a: Value, descriptor: _Descriptor, keep: Value, blocks: range
) -> None:
    """Multiply A with some blocks of eight columns."""
    b, count, kind = e.b, len(blocks), how.kind
    target = ins.operand("d")
    assert isinstance(target, Vec)
    columns = e.buffer("wgmma.b", ROW * 2 * MOST_SETS)
    # Registers 2 j and 2 j + 1 are the two pieces of K of block j.
    for first in range(0, 2 * count, 4):
        numbers = [blocks.start + (first + matrix) // 2 for matrix in range(4)]
        pieces = [matrix % 2 for matrix in range(4)]
        registers = min(4, 2 * count - first)
        place = b.offset(columns, ROW * first)
        address = _addresses(e, descriptor, numbers, pieces, by_k=how.b_by_columns)
        _load_rows(e, address, registers, place, trans=not how.b_by_columns)
    results = target.items[how.results * blocks.start : how.results * blocks.stop]
    zero = const(_I32, 0)
    before = [b.select(keep, e.read(item, "b32", ins.line), zero) for item in results]
    c = pass_registers(e, "mma.c", before)
    d = e.buffer("mma.d", ROW * len(results))
    options = ["satfinite"] if kind.satfinite else []
    name = mma_name(
        f"m16n8k{kind.k}", [kind.d_type, kind.a_type, kind.b_type, kind.c_type], options, mode=e.mode, arch=WGMMA
    )
    b.call_pointer(e.imported(f"{name}.x{count}" if count > 1 else name), "void", [d, a, columns, c])
    for number, item in enumerate(results):
        e.write(item, b.load(_I32, b.offset(d, ROW * number), align=64), "b32", ins.line)


def _a_registers(e: KernelContract, ins: Instruction, how: Wgmma) -> list[Value]:
    """Return the four registers of A: rows 0 to 7 and 8 to 15 of the warp's, the first piece of K, then the second."""
    if how.in_registers:
        return e.items(ins, "a", "b32")
    b = e.b
    warp = b.op("and", get(b, e.warp, WARP_ID), const("i32", WARPS - 1))
    room = e.buffer("wgmma.a", ROW * 4)
    address = _addresses(e, _descriptor(e, ins, "a"), [0, 1, 0, 1], [0, 0, 1, 1], by_k=how.a_by_rows, warp=warp)
    _load_rows(e, address, 4, room, trans=not how.a_by_rows)
    return [b.load(_I32, b.offset(room, ROW * number), align=64) for number in range(4)]


def _load_rows(e: KernelContract, address: Value, registers: int, place: Value, *, trans: bool) -> None:
    name = f"ldmatrix.x{registers}" + (".trans" if trans else "")
    e.runtime(name, "void", [address, e.active(), e.site(), place])


def _descriptor(e: KernelContract, ins: Instruction, name: str) -> _Descriptor:
    b = e.b
    lanes = _lanes(e, ins, name)
    one = b.extract(lanes, 0)
    base = b.op("and", b.op("lshr", one, const("i64", BASE_OFFSET_SHIFT)), const("i64", 7))
    same = b.cast("bitcast", b.icmp("eq", lanes, b.splat(one)), "i32")

    def field(shift: int) -> Value:
        moved = b.op("lshr", one, const("i64", shift)) if shift else one
        sixteenths = b.op("and", b.cast("trunc", moved, "i32"), const("i32", 0x3FFF))
        return b.op("shl", sixteenths, const("i32", 4))

    mode = b.cast("trunc", b.op("lshr", one, const("i64", 62)), "i32")
    valid = b.op("and", b.icmp("eq", base, const("i64", 0)), b.icmp("eq", same, const("i32", -1)))
    return _Descriptor(field(0), field(16), field(32), mode, valid)


def _lanes(e: KernelContract, ins: Instruction, name: str) -> Value:
    """Return a descriptor, as each lane gives it."""
    lanes = e.read(ins.operand(name), "b64", ins.line)
    if lanes.ty == "i64":
        raise Unsupported(f"{ins.opcode}: a descriptor for one lane", ins.line)
    return lanes


def _addresses(
    e: KernelContract,
    of: _Descriptor,
    blocks: list[int],
    pieces: list[int],
    *,
    by_k: bool,
    warp: Value | None = None,
) -> Value:
    """Return the address of the row that each lane points at: lanes 8 i to 8 i + 7 at those of register i.

    Register i is the block `blocks[i]` of eight rows and the piece `pieces[i]` of K; warps add two blocks each.
    """
    b = e.b

    def lanes(values: list[int]) -> Value:
        return vector("i32", [values[lane // 8] for lane in range(LANES)])

    def times(x: Value, y: Value) -> Value:
        return b.op("mul", x, b.splat(y))

    def choose(plain: Value, swizzled: Value) -> Value:
        return b.select(b.icmp("eq", of.mode, const("i32", 0)), plain, swizzled)

    block, piece, row = lanes(blocks), lanes(pieces), vector("i32", [lane % 8 for lane in range(LANES)])
    if warp is not None:
        block = b.op("add", block, b.splat(b.op("shl", warp, const("i32", 1))))
    shift = b.op("sub", const("i32", 8), of.mode)  # 128, 64, 32 bytes for modes 1, 2, 3
    width = choose(const("i32", 16), b.op("shl", const("i32", 1), shift))
    address = b.op("add", b.splat(of.start), times(row, width))
    if by_k:
        address = b.op("add", address, times(block, of.stride))
        address = b.op("add", address, times(piece, choose(of.leading, const("i32", 16))))
    else:
        bytes_of = b.op("shl", block, const(_I32, 4))
        step = b.op("lshr", bytes_of, b.splat(shift))
        inside = b.op("and", bytes_of, b.splat(b.op("sub", width, const("i32", 1))))
        swizzled = b.op("add", times(step, of.leading), inside)
        is_plain = b.icmp("eq", of.mode, const("i32", 0))
        address = b.op("add", address, b.select(is_plain, times(block, of.stride), swizzled))
        address = b.op("add", address, times(piece, choose(of.leading, of.stride)))
    mask = choose(const("i32", 0), b.op("lshr", const("i32", 7), b.op("sub", of.mode, const("i32", 1))))
    bits = b.op("and", b.op("lshr", address, const(_I32, 7)), b.splat(mask))
    address = b.op("xor", address, b.op("shl", bits, const(_I32, 4)))
    return b.select(of.valid, address, const(_I32, INVALID_ADDRESS))


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {"wgmma": wgmma}
