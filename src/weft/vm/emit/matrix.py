"""ldmatrix, stmatrix, movmatrix, mma and wmma: registers are passed to the runtime as consecutive 128-byte rows."""

import re
from collections.abc import Callable, Sequence

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Operand, Vec

from ..ir import LANES, Value, const, element, vec
from ..mma_kind import wmma_parts
from ..runtime.shape import transposed
from ..scale_operands import scales_of, select_of
from .kernel_contract import KernelContract
from .matrix_bytes import load_bytes
from .mbarrier import shared_address
from .sync import first_lane

ROW = 128
"""Bytes of one 32-bit register of a warp; a 64-bit one takes two."""


def _registers(ins: Instruction, name: str) -> tuple[Operand, ...]:
    operand = ins.operand(name)
    return operand.items if isinstance(operand, Vec) else (operand,)


def _check_registers(ins: Instruction, name: str, matrix: str, shape: str, ptx_type: str) -> None:
    """Refuse a list of registers that is not a warp's A, B or C: the runtime would overrun its buffer."""
    m, n, k = _sizes(shape)
    elements = {"a": m * k, "b": k * n}.get(matrix, m * n)
    width = 4 if k == 64 and matrix in ("a", "b") else WIDTH[ptx_type]  # two e2m1 are a byte there
    needed = elements * width // (LANES * max(width, 32))
    if ins.form.name == "wmma" and matrix in ("a", "b") and ptx_type == "f16":
        needed = 8  # in every shape; those beyond the matrix repeat the first ones
    found = len(_registers(ins, name))
    if found != needed:
        raise Unsupported(f"{ins.opcode} with {found} registers as operand {name}; it takes {needed}", ins.line)


def pass_registers(e: KernelContract, role: str, values: Sequence[Value]) -> Value:
    """Store registers in memory, one after the other."""
    row = 2 * ROW if element(values[0].ty) == "i64" else ROW
    room = e.buffer(role, row * len(values))
    for number, value in enumerate(values):
        e.b.store(value, e.b.offset(room, row * number), align=64)
    return room


def _take(e: KernelContract, registers: Sequence[Operand], room: Value, line: int, *, bits: int = 32) -> None:
    """Load destination registers from memory."""
    for number, item in enumerate(registers):
        value = e.b.load(vec(f"i{bits}"), e.b.offset(room, LANES * bits // 8 * number), align=64)
        e.write(item, value, f"b{bits}", line)


def ldmatrix(e: KernelContract, ins: Instruction) -> None:
    if not ins.has("m8n8"):
        load_bytes(e, ins)
        return
    count = int(ins.mods["num"][1:])
    if len(_registers(ins, "d")) != count:
        raise Unsupported(f"{ins.opcode} into {len(_registers(ins, 'd'))} registers", ins.line)
    room = e.buffer("tile", ROW * 4)
    name = f"ldmatrix.x{count}" + (".trans" if ins.has("trans") else "")
    e.runtime(name, "void", [shared_address(e, ins), e.active(), e.site(), room])
    _take(e, _registers(ins, "d"), room, ins.line)


def stmatrix(e: KernelContract, ins: Instruction) -> None:
    """Store rows of 16 bytes: lane 8 i + r gives the address of row r of matrix i, which is in register i.

    As 128 bytes, a register is its eight rows one after the other, so the rows are a store of four words per lane.
    """
    count = int(ins.mods["num"][1:])
    if len(_registers(ins, "b")) != count:
        raise Unsupported(f"{ins.opcode} of {len(_registers(ins, 'b'))} registers", ins.line)
    b = e.b
    registers = e.items(ins, "b")
    if ins.has("trans"):
        matrices = (b.cast("bitcast", value, vec("i16", 64)) for value in registers)
        registers = [b.cast("bitcast", transposed(b, matrix), vec("i32")) for matrix in matrices]
    registers += [const(vec("i32"), 0)] * (4 - count)
    words = e.buffer("st", ROW * 4)
    for word in range(4):
        column = [start + 4 * row + word for start in (0, LANES) for row in range(8)]
        low, high = (b.shuffle(registers[at], registers[at + 1], column) for at in (0, 2))
        b.store(b.shuffle(low, high, range(LANES)), b.offset(words, ROW * word), align=64)
    named = b.op("and", e.active(), const("i32", (1 << (8 * count)) - 1))
    e.runtime("st.shared.b32.v4", "void", [shared_address(e, ins), named, e.site(), words])


def movmatrix(e: KernelContract, ins: Instruction) -> None:
    e.dst(ins, e.runtime("movmatrix", vec("i32"), [e.src(ins, "a"), e.active(), e.site()]))


def mma(e: KernelContract, ins: Instruction) -> None:
    mma_together(e, [ins])


def mma_together(e: KernelContract, members: Sequence[Instruction]) -> None:
    """Write instructions of one opcode that share A, none of which reads what another writes."""
    first = members[0]
    types = [first.mods[slot] for slot in ("dtype", "atype", "btype", "ctype")]
    shape = first.mods["shape"]
    for ins in members:
        for operand, ptx_type in zip("dabc", types, strict=True):
            _check_registers(ins, operand, operand, shape, ptx_type)
    name = mma_name(shape, types, _options(first), mode=e.mode, arch=e.arch)
    b, c = ([value for ins in members for value in e.items(ins, operand)] for operand in "bc")
    results = [item for ins in members for item in _registers(ins, "d")]
    bits = max(WIDTH[types[0]], 32)
    scales = _scales(e, first) if "stype" in first.mods else []
    d = _multiply(e, name, len(members), e.items(first, "a"), b, c, len(results) * bits // 32, scales)
    _take(e, results, d, first.line, bits=bits)


def mma_name(shape: str, types: Sequence[str], options: Sequence[str], *, mode: str, arch: str) -> str:
    """Return the runtime's name of one tensor-core instruction."""
    return ".".join(["mma", shape, *types, *options, mode, arch])


def _options(ins: Instruction) -> list[str]:
    """Return `satfinite`, or a rounding other than to nearest, or the type and number of scales."""
    if "stype" in ins.mods:
        return [f"{ins.mods['stype']}x{scales_of(ins)}"]
    rounding = ins.mods.get("rnd", "rn")
    return ["satfinite"] if ins.has("satfinite") else [rounding] if rounding != "rn" else []


def _scales(e: KernelContract, ins: Instruction) -> list[Value]:
    """Return where the scales of 16 rows of A and of 8 columns of B are, a word each, the first scale in its low byte.

    Of every four lanes, 2 i and 2 i + 1 have those of rows g and g + 8 of A, lane j that of column g of B. The
    instruction names i, j and the first byte; these numbers are the same in all lanes.
    """
    b, active = e.b, e.active()
    room = e.buffer("mma.scales", 2 * ROW)
    every_fourth = range(0, LANES, 4)
    for side, start in (("a", 0), ("b", 64)):
        byte, lane = (
            b.cast("zext", b.cast("trunc", first_lane(e, item, active, ins.line), "i2"), "i32")
            for item in select_of(ins, side)
        )
        shift = b.splat(b.op("shl", byte, const("i32", 3)))
        words = b.op("lshr", e.items(ins, f"scale_{side}")[0], shift)
        held = e.buffer("mma.scale", 2 * ROW)
        b.store(words, held, align=64)
        at = b.op("shl", b.cast("zext", lane, "i64"), const("i64", 3 if side == "a" else 2))
        # A vector that begins at the chosen lane: the last ones of it, past the register, are not used.
        from_lane = b.load(vec("i32"), b.offset(held, at), align=4)
        chosen = [*every_fourth, *(place + 1 for place in every_fourth)] if side == "a" else [*every_fourth]
        b.store(b.shuffle(from_lane, None, chosen), b.offset(room, start), align=32)
    return [room]


def _multiply(
    e: KernelContract,
    name: str,
    count: int,
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    results: int,
    scales: Sequence[Value] = (),
) -> Value:
    """Call a tensor-core function for `count` operand sets that share A; return where the `results` rows are."""
    d = e.buffer("mma.d", ROW * results)
    args = [d, pass_registers(e, "mma.a", a), pass_registers(e, "mma.b", b), pass_registers(e, "mma.c", c), *scales]
    e.b.call_pointer(e.imported(f"{name}.x{count}" if count > 1 else name), "void", args)
    return d


def wmma(e: KernelContract, ins: Instruction) -> None:
    if ins.has("mma"):
        if ins.mods["dtype"] == "f64":
            mma(e, ins)  # m8n8k4 is one instruction
        else:
            _wmma_mma(e, ins)
        return
    which = "d" if ins.has("store") else "c" if ins.has("c") else ins.mods["which"]
    space = e.space_of(ins)
    active = e.active()
    address = e.address(ins, "a", space)
    first = e.b.intrinsic("cttz", "i32", [active, const("i1", 0)])
    base = e.b.extract(address, first)
    base = e.b.cast("zext", base, "i64")
    shape = ins.mods["shape"]
    _check_registers(ins, "b" if which == "d" else "d", which, shape, ins.type)
    given = ins.find("stride")
    stride = first_lane(e, given if given is not None else Imm(_width(which, shape, ins)), active, ins.line)
    verb = "store" if which == "d" else "load"
    name = f"wmma.{verb}.{which}.{ins.mods['layout']}.{shape}.{space}.{ins.type}"
    if which == "d":
        values = e.items(ins, "b")
        e.runtime(name, "void", [base, stride, active, e.site(), pass_registers(e, "wmma.d", values)])
        return
    room = e.buffer("wmma.load", ROW * 8)
    e.runtime(name, "void", [base, stride, active, e.site(), room])
    _take(e, _registers(ins, "d"), room, ins.line, bits=max(WIDTH[ins.type], 32))


def _width(which: str, shape: str, ins: Instruction) -> int:
    """Return the stride of a matrix whose rows or columns follow each other without gaps."""
    m, n, k = _sizes(shape)
    rows, columns = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    return columns if ins.mods["layout"] == "row" else rows


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = (int(size) for size in re.findall(r"\d+", shape))
    return m, n, k


def _wmma_mma(e: KernelContract, ins: Instruction) -> None:
    """Write a wmma as m16n8 instructions, as ptxas lowers it; those of one strip of A share it."""
    shape = ins.mods["shape"]
    m, n, k = _sizes(shape)
    types = [ins.mods["dtype"], ins.mods.get("atype", "f16"), ins.mods.get("btype", "f16"), ins.mods["ctype"]]
    for operand, ptx_type in zip("dabc", types, strict=True):
        _check_registers(ins, operand, operand, shape, ptx_type)
    a, b, c = (e.items(ins, name) for name in "abc")
    name = mma_name(f"m16n8k{k}", types, _options(ins), mode=e.mode, arch=e.arch)
    results = _registers(ins, "d")
    parts = wmma_parts(m, n, k, a_type=types[1], c_type=types[3])
    targets = wmma_parts(m, n, k, a_type=types[1], c_type=types[0])
    per_strip = n // 8
    for first in range(0, len(parts), per_strip):
        strip, into = parts[first : first + per_strip], targets[first : first + per_strip]
        written = [register for part in into for register in part.c]
        room = _multiply(
            e,
            name,
            per_strip,
            _chosen(a, strip[0].a),
            _chosen(b, [register for part in strip for register in part.b]),
            _chosen(c, [register for part in strip for register in part.c]),
            len(written),
        )
        for number, register in enumerate(written):
            if register is not None:
                value = e.b.load(vec("i32"), e.b.offset(room, ROW * number), align=64)
                e.write(results[register], value, "b32", ins.line)


def _chosen(values: Sequence[Value], registers: Sequence[int | None]) -> list[Value]:
    """Return registers by number; absent rows are zero."""
    return [const(vec("i32"), 0) if number is None else values[number] for number in registers]


assert LANES * 4 == ROW
EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "ldmatrix": ldmatrix,
    "stmatrix": stmatrix,
    "movmatrix": movmatrix,
    "mma": mma,
    "wmma": wmma,
}
