"""Bulk copies, tensor copies and tensor maps: the work is done by the runtime, a lane at a time."""

from collections.abc import Callable

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Mem, Sym

from ..ir import LANES, Value, const, vec, vector
from ..tensor_map import BYTES, REDUCTIONS, field_offset
from .kernel_contract import KernelContract
from .matrix import ROW

_I32 = vec("i32")


def cp(e: KernelContract, ins: Instruction) -> None:
    if ins.has("prefetch"):
        return
    if ins.has("commit_group"):
        e.runtime("bulk.commit", "void", [e.active(), e.site()])
    elif ins.has("wait_group"):
        count = ins.operand("count")
        if not isinstance(count, Imm):
            raise Unsupported(f"{ins.opcode} with a count in a register", ins.line)
        e.runtime("bulk.wait", "void", [const("i32", count.value), e.active()])
    elif ins.find("map") is not None:
        _tile(e, ins)
    else:
        _run(e, ins)


def _reduction(ins: Instruction) -> str:
    """Return the operation of cp.reduce; empty for a copy."""
    if not ins.opcode.startswith("cp.reduce"):
        return ""
    return ins.mods.get("op") or next(operation for operation in REDUCTIONS if ins.has(operation))


def _run(e: KernelContract, ins: Instruction) -> None:
    loads = ins.find("mbar") is not None
    near, far = ("dst", "src") if loads else ("src", "dst")
    operation = _reduction(ins)
    name = f"{operation}.{ins.type}" if operation else "load" if loads else "store"
    size = e.lift(e.src(ins, "size"))
    args = [e.address(ins, near, "shared"), e.address(ins, far, "global"), size]
    args += [e.address(ins, "mbar", "shared")] if loads else []
    _issue(e, ins, f"bulk.{name}", [*args, e.active(), e.site()])


def _tile(e: KernelContract, ins: Instruction) -> None:
    loads = ins.find("mbar") is not None
    mem = ins.operand("map")
    assert isinstance(mem, Mem)
    if isinstance(mem.base, Sym):
        raise Unsupported(f"{ins.opcode}: a tensor map by name; use its generic address", ins.line)
    room = e.buffer("coordinates", ROW * 5)
    for number, value in enumerate(e.items(ins, "coordinates", "s32")):
        e.b.store(value, e.b.offset(room, ROW * number), align=64)
    move = _reduction(ins) or ("load" if loads else "store")
    rank = "gather4" if ins.has("tile::gather4") else ins.mods["dim"][0]
    args = [e.address(ins, "dst" if loads else "src", "shared"), e.address(ins, "map", "generic"), room]
    args += [e.address(ins, "mbar", "shared")] if loads else []
    _issue(e, ins, f"bulk.tile.{move}.{rank}", [*args, e.active(), e.site()])


def _issue(e: KernelContract, ins: Instruction, name: str, args: list[Value]) -> None:
    """Call the runtime; a multicast copies to each CTA of a mask."""
    if ins.find("ctas") is None:
        e.runtime(name, "void", args)
        return
    ctas = e.lift(e.src(ins, "ctas"))
    e.runtime(f"multicast.{name}", "void", [*args, e.b.cast("zext", ctas, _I32)])


def tensormap(e: KernelContract, ins: Instruction) -> None:
    if ins.has("cp_fenceproxy"):
        _hand_over(e, ins)
        return
    space = e.space_of(ins)
    value = e.lift(e.src(ins, "value"))
    offset = field_offset(ins)
    address = e.address(ins, "a", space)
    address = e.b.op("add", address, const(address.ty, offset))
    e.runtime(f"st.{space}.b{WIDTH[ins.type]}.v1", "void", [address, e.active(), e.site(), value])


def _hand_over(e: KernelContract, ins: Instruction) -> None:
    """Copy 128 bytes from shared to global memory: each lane a word, after all lanes have met (`.sync`)."""
    size = ins.operand("size")
    if not isinstance(size, Imm) or size.value != BYTES:
        raise Unsupported(f"{ins.opcode} of {size} bytes", ins.line)

    def words(address: Value) -> Value:
        scalar = "i32" if address.ty == _I32 else "i64"
        return e.b.op("add", address, vector(scalar, [4 * lane for lane in range(LANES)]))

    e.runtime("warp.sync", "void", [e.active(), e.site()])
    found = e.runtime("ld.shared.b32.v1", _I32, [words(e.address(ins, "src", "shared")), e.active(), e.site()])
    to = words(e.address(ins, "dst", "global"))
    e.runtime("st.global.b32.v1", "void", [to, e.active(), e.site(), found])
    e.runtime("fence.map.release", "void", [e.active(), e.site()])


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {"cp": cp, "tensormap": tensormap}
