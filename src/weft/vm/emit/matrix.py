"""ldmatrix, movmatrix, mma and wmma: registers are handed to the runtime as consecutive 128-byte rows."""

import re
from collections.abc import Callable, Sequence

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Instruction, Operand, Vec

from ..ir import LANES, Value, const, vec
from .kernel_contract import KernelContract
from .sync import first_lane

ROW = 128
"""Bytes of one 32-bit register of a warp."""


def _registers(ins: Instruction, name: str) -> tuple[Operand, ...]:
    operand = ins.operand(name)
    return operand.items if isinstance(operand, Vec) else (operand,)


def _check_registers(ins: Instruction, name: str, matrix: str, shape: str, ptx_type: str) -> None:
    """Refuse a list of registers that is not a warp's A, B or C: the runtime would run past the end of its buffer."""
    m, n, k = (int(size) for size in re.findall(r"\d+", shape))
    elements = {"a": m * k, "b": k * n}.get(matrix, m * n)
    width = WIDTH[ptx_type]
    needed = elements * width // (LANES * max(width, 32))
    if ins.form.name == "wmma" and matrix in ("a", "b") and ptx_type == "f16":
        needed = 8  # in every shape; those beyond the matrix repeat the first ones
    found = len(_registers(ins, name))
    if found != needed:
        raise Unsupported(f"{ins.opcode} with {found} registers as operand {name}; it takes {needed}", ins.line)


def _pass(e: KernelContract, role: str, values: Sequence[Value]) -> Value:
    """Registers in memory, one after the other."""
    room = e.buffer(role, ROW * len(values))
    for number, value in enumerate(values):
        e.b.store(value, e.b.offset(room, ROW * number), align=64)
    return room


def _take(e: KernelContract, ins: Instruction, room: Value, *, first: int = 0) -> None:
    """Destination registers from memory."""
    for number, item in enumerate(_registers(ins, "d")):
        value = e.b.load(vec("i32"), e.b.offset(room, ROW * (first + number)), align=64)
        e.write(item, value, "b32", ins.line)


def ldmatrix(e: KernelContract, ins: Instruction) -> None:
    count = int(ins.mods["num"][1:])
    if len(_registers(ins, "d")) != count:
        raise Unsupported(f"{ins.opcode} into {len(_registers(ins, 'd'))} registers", ins.line)
    room = e.buffer("tile", ROW * 4)
    name = f"ldmatrix.x{count}" + (".trans" if ins.has("trans") else "")
    e.runtime(name, "void", [e.address(ins, "a", "shared"), e.active(), e.site(), room])
    _take(e, ins, room)


def movmatrix(e: KernelContract, ins: Instruction) -> None:
    e.dst(ins, e.runtime("movmatrix", vec("i32"), [e.src(ins, "a"), e.active(), e.site()]))


def mma(e: KernelContract, ins: Instruction) -> None:
    types = [ins.mods[slot] for slot in ("dtype", "atype", "btype", "ctype")]
    for name, ptx_type in zip("dabc", types, strict=True):
        _check_registers(ins, name, name, ins.mods["shape"], ptx_type)
    _multiply(e, ins, ins.mods["shape"], types)


def mma_name(shape: str, types: Sequence[str], *, saturate: bool, mode: str, arch: str) -> str:
    """The runtime's name of one tensor-core instruction."""
    return ".".join(["mma", shape, *types, *(["satfinite"] if saturate else []), mode, arch])


def _multiply(e: KernelContract, ins: Instruction, shape: str, types: Sequence[str]) -> None:
    a, b, c = (e.items(ins, name) for name in "abc")
    name = mma_name(shape, types, saturate=ins.has("satfinite"), mode=e.mode, arch=e.arch)
    d = e.buffer("mma.d", ROW * len(_registers(ins, "d")))
    args = [d, _pass(e, "mma.a", a), _pass(e, "mma.b", b), _pass(e, "mma.c", c)]
    e.b.call_pointer(e.imported(name), "void", args)
    _take(e, ins, d)


def wmma(e: KernelContract, ins: Instruction) -> None:
    if ins.has("mma"):
        _wmma_mma(e, ins)
        return
    which = "d" if ins.has("store") else "c" if ins.has("c") else ins.mods["which"]
    space = e.space_of(ins)
    active = e.active()
    address = e.address(ins, "a", space)
    first = e.b.intrinsic("cttz", "i32", [active, const("i1", 0)])
    base = e.b.extract(address, first)
    base = e.b.cast("zext", base, "i64")
    stride_operand = ins.find("stride")
    shape = ins.mods["shape"]
    if stride_operand is None:
        raise Unsupported(f"{ins.opcode} without a stride", ins.line)
    _check_registers(ins, "b" if which == "d" else "d", which, shape, ins.type)
    stride = first_lane(e, stride_operand, active, ins.line)
    verb = "store" if which == "d" else "load"
    name = f"wmma.{verb}.{which}.{ins.mods['layout']}.{shape}.{space}.{ins.type}"
    if which == "d":
        values = e.items(ins, "b")
        e.runtime(name, "void", [base, stride, active, e.site(), _pass(e, "wmma.d", values)])
        return
    room = e.buffer("wmma.load", ROW * 8)
    e.runtime(name, "void", [base, stride, active, e.site(), room])
    _take(e, ins, room)


def _wmma_mma(e: KernelContract, ins: Instruction) -> None:
    """m16n16k16 is two m16n8k16 side by side, as ptxas lowers it; fragments are laid out for that."""
    shape = ins.mods["shape"]
    atype = ins.mods.get("atype", "f16")
    if shape != "m16n16k16" or atype not in ("f16", "bf16"):
        raise Unsupported(f"{ins.opcode} on the virtual GPU", ins.line)
    types = [ins.mods["dtype"], atype, ins.mods.get("btype", "f16"), ins.mods["ctype"]]
    for operand, ptx_type in zip("dabc", types, strict=True):
        _check_registers(ins, operand, operand, shape, ptx_type)
    a, b, c = (e.items(ins, name) for name in "abc")
    name = mma_name("m16n8k16", types, saturate=False, mode=e.mode, arch=e.arch)
    half = len(c) // 2
    d_half = len(_registers(ins, "d")) // 2
    d = e.buffer("wmma.d", ROW * 8)
    a_room, b_room, c_room = _pass(e, "mma.a", a[:4]), _pass(e, "wmma.b", b[:4]), _pass(e, "wmma.c", c)
    for side in range(2):
        e.b.call_pointer(
            e.imported(name), "void",
            [e.b.offset(d, ROW * d_half * side), a_room, e.b.offset(b_room, ROW * 2 * side),
             e.b.offset(c_room, ROW * half * side)],
        )  # fmt: skip
    _take(e, ins, d)


assert LANES * 4 == ROW
EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "ldmatrix": ldmatrix,
    "movmatrix": movmatrix,
    "mma": mma,
    "wmma": wmma,
}
