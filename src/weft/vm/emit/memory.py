"""mov, ld, ldu, st, cvta, isspacep, prefetch and asynchronous copies."""

from collections.abc import Callable

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Mem, Operand, Reg, Sym, Vec
from weft.ptx.passes.discard_unread import unread_members

from ..context import WARP_PARAMS
from ..ir import LANES, Value, const, element, lanes_of, vec
from ..last_word import takes_last_word
from ..memory import GLOBAL_BASE, LOCAL_BASE, PARAM_BASE, SHARED_BASE, WINDOW_BYTES
from ..runtime.shape import get
from .kernel_contract import KernelContract

WINDOWS = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE}


def mov(e: KernelContract, ins: Instruction) -> None:
    """Copy a register, or pack several registers into one and back."""
    d, a = ins.operand("d"), ins.operand("a")
    if isinstance(a, Vec):
        e.dst(ins, _pack(e, a, ins))
    elif isinstance(d, Vec):
        _unpack(e, d, e.bits(e.src(ins, "a")), ins)
    else:
        e.dst(ins, e.src(ins, "a"))


def _piece(ins: Instruction, count: int) -> str:
    width = WIDTH[ins.type] // count
    if width not in (8, 16, 32):
        raise Unsupported(f"{ins.opcode} of {count} pieces", ins.line)
    return f"b{width}"


def _pack(e: KernelContract, a: Vec, ins: Instruction) -> Value:
    piece = _piece(ins, len(a.items))
    width, scalar = WIDTH[piece], f"i{WIDTH[ins.type]}"
    whole = e.const(scalar, 0)
    for number, item in enumerate(a.items):
        part = e.b.cast("zext", e.read(item, piece, ins.line), e.ty(scalar))
        if number:
            part = e.b.op("shl", part, e.const(scalar, width * number))
        whole = part if number == 0 else e.b.op("or", whole, part)
    return whole


def _unpack(e: KernelContract, d: Vec, value: Value, ins: Instruction) -> None:
    piece = _piece(ins, len(d.items))
    width, scalar = WIDTH[piece], f"i{WIDTH[ins.type]}"
    for number, item in enumerate(d.items):
        part = e.b.op("lshr", value, e.const(scalar, width * number)) if number else value
        e.write(item, e.b.cast("trunc", part, vec(f"i{width}", lanes_of(value.ty))), piece, ins.line)


# -- ld, ldu and st -------------------------------------------------------------------------------------------------


def ld(e: KernelContract, ins: Instruction) -> None:
    space = e.space_of(ins)
    operand = ins.operand("a")
    items = _items(ins.operand("d"))
    _same_count(ins, items)
    if space == "param" and isinstance(operand, Mem) and isinstance(operand.base, Sym):
        _load_parameter(e, ins, operand, items)
    elif space == "param":
        _load_window(e, ins, "param", items)
    else:
        _load(e, ins, space, items)


def ldu(e: KernelContract, ins: Instruction) -> None:
    """Load from global memory: a generic address of another window is out of range."""
    items = _items(ins.operand("d"))
    _same_count(ins, items)
    _load(e, ins, "global", items)


def _load(e: KernelContract, ins: Instruction, space: str, items: tuple[Operand, ...]) -> None:
    if e.lanes == 1:
        _load_once(e, ins, space, items)
    else:
        _load_lanes(e, ins, space, items, e.address(ins, "a", space))


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vec) else (operand,)


def _same_count(ins: Instruction, items: tuple[Operand, ...]) -> None:
    if len(items) != int(ins.mods.get("vec", "v1")[1:]):
        raise Unsupported(f"{ins.opcode} with {len(items)} registers", ins.line)


def _load_parameter(e: KernelContract, ins: Instruction, operand: Mem, items: tuple[Operand, ...]) -> None:
    """Load a kernel parameter: the same for all lanes, at a known offset."""
    assert isinstance(operand.base, Sym)
    size = WIDTH[ins.type] // 8
    base = get(e.b, e.warp, WARP_PARAMS)
    at = int(e.symbol(operand.base).ref) + operand.offset
    if not 0 <= at <= e.param_bytes - size * len(items):
        raise Unsupported(f"{ins.opcode} outside the kernel's {e.param_bytes} bytes of parameters", ins.line)
    for number, item in enumerate(items):
        value = e.b.load(f"i{8 * size}", e.b.offset(base, at + number * size), align=1)
        e.write(item, e.lift(value), ins.type, ins.line)


def _load_window(e: KernelContract, ins: Instruction, space: str, items: tuple[Operand, ...]) -> None:
    """Load from an address in a window that has no access functions: use its generic address."""
    lanes, e.lanes = e.lanes, LANES
    address = e.b.op("add", e.address(ins, "a", "generic"), const(vec("i64"), WINDOWS[space]))
    _load_lanes(e, ins, "generic", items, address)
    e.lanes = lanes


def _load_once(e: KernelContract, ins: Instruction, space: str, items: tuple[Operand, ...]) -> None:
    width, count = WIDTH[ins.type], len(items)
    args = [e.address(ins, "a", space), e.active(), e.site()]
    name = f"ldu.{space}.{_piece_name(ins, space)}.{_vector_name(ins, count)}"
    if count == 1:
        e.write(items[0], e.runtime(name, f"i{width}", args), ins.type, ins.line)
        return
    room = e.buffer("ldu", 64)
    e.runtime(name, "void", [*args, room])
    for number, item in enumerate(items[: count - unread_members(ins)]):
        value = e.b.load(f"i{width}", e.b.offset(room, number * width // 8), align=1)
        e.write(item, value, ins.type, ins.line)


def _load_lanes(e: KernelContract, ins: Instruction, space: str, items: tuple[Operand, ...], address: Value) -> None:
    width, count = WIDTH[ins.type], len(items)
    args = [address, e.active(), e.site()]
    name = f"ld.{space}.{_piece_name(ins, space)}.{_vector_name(ins, count)}"
    ty = vec(f"i{width}")
    if count == 1:
        e.write(items[0], e.runtime(name, ty, args), ins.type, ins.line)
        return
    room = e.buffer("ld", LANES * width // 8 * count)
    e.runtime(name, "void", [*args, room])
    for number, item in enumerate(items[: count - unread_members(ins)]):
        e.write(item, e.b.load(ty, e.b.offset(room, number * LANES * width // 8), align=64), ins.type, ins.line)


def _piece_name(ins: Instruction, space: str) -> str:
    """Return b32, or w32 where the load may take the rest of a buffer's last word."""
    letter = "w" if space in ("global", "generic") and takes_last_word(ins) else "b"
    return f"{letter}{WIDTH[ins.type]}"


def _vector_name(ins: Instruction, count: int) -> str:
    """Return v4, or v4r3 where only the first three members are read."""
    unread = unread_members(ins)
    return f"v{count}r{count - unread}" if unread else f"v{count}"


def st(e: KernelContract, ins: Instruction) -> None:
    space = e.space_of(ins)
    items = _items(ins.operand("b"))
    _same_count(ins, items)
    if space == "param":
        raise Unsupported("a store to a kernel parameter", ins.line)
    width, count = WIDTH[ins.type], len(items)
    values = [e.bits(e.read(item, ins.type, ins.line)) for item in items]
    args = [e.address(ins, "a", space), e.active(), e.site()]
    name = f"st.{space}.b{width}.v{count}"
    if count == 1:
        e.runtime(name, "void", [*args, values[0]])
        return
    room = e.buffer("st", LANES * width // 8 * count)
    for number, value in enumerate(values):
        e.b.store(value, e.b.offset(room, number * LANES * width // 8), align=64)
    e.runtime(name, "void", [*args, room])


# -- addresses ------------------------------------------------------------------------------------------------------


def cvta(e: KernelContract, ins: Instruction) -> None:
    """Convert between a space's own addresses and generic ones; global and const are the same in both."""
    value = e.src(ins, "a")
    base = WINDOWS.get(ins.mods["space"], 0)
    if base and element(value.ty) == "i64":
        value = e.b.op("sub" if ins.has("to") else "add", value, e.const("i64", base))
    elif base:
        raise Unsupported("cvta of 32-bit addresses", ins.line)
    e.dst(ins, value)


def isspacep(e: KernelContract, ins: Instruction) -> None:
    value, space = e.src(ins, "a"), ins.mods["space"]
    if space in WINDOWS:
        offset = e.b.op("sub", value, e.const("i64", WINDOWS[space]))
        e.dst(ins, e.b.icmp("ult", offset, e.const("i64", WINDOW_BYTES)))
        return
    constant = e.const("i1", 0)  # constants are in global memory, each a separate buffer
    for start, size_bytes in e.constants():
        offset = e.b.op("sub", value, e.lift(start))
        constant = e.b.op("or", constant, e.b.icmp("ult", offset, e.const("i64", size_bytes)))
    if space == "global":
        above = e.b.icmp("uge", value, e.const("i64", GLOBAL_BASE))
        constant = e.b.op("and", above, e.b.op("xor", constant, e.const("i1", 1)))
    e.dst(ins, constant)


def createpolicy(e: KernelContract, ins: Instruction) -> None:
    e.dst(ins, e.const("i64", 0))


def prefetch(e: KernelContract, ins: Instruction) -> None:
    """Do nothing: a prefetch has no effect that a program can see."""


# -- cp.async -------------------------------------------------------------------------------------------------------


def cp(e: KernelContract, ins: Instruction) -> None:
    if ins.has("commit_group"):
        e.runtime("cp.commit", "void", [e.active()])
    elif ins.has("wait_all"):
        e.runtime("cp.wait", "void", [const("i32", -1), e.active(), e.site()])
    elif ins.has("wait_group"):
        e.runtime("cp.wait", "void", [const("i32", _immediate(ins, "count")), e.active(), e.site()])
    else:
        _copy(e, ins)


def _immediate(ins: Instruction, name: str) -> int:
    operand = ins.operand(name)
    if not isinstance(operand, Imm):
        raise Unsupported(f"{ins.opcode} with {name} in a register", ins.line)
    return operand.value


def _copy(e: KernelContract, ins: Instruction) -> None:
    size = _immediate(ins, "size")
    if size not in ((16,) if ins.mods["cop"] == "cg" else (4, 8, 16)):
        raise Unsupported(f"{ins.opcode} of {size} bytes", ins.line)
    extra = ins.find("extra")
    from_bytes = const(vec("i32"), size)
    if isinstance(extra, Reg) and e.register_type(extra.name) == "pred":
        ignored = e.read(extra, "pred", ins.line)
        from_bytes = e.b.select(ignored, const(vec("i32"), 0), from_bytes)
    elif isinstance(extra, Reg | Imm) and not ins.has("L2::cache_hint"):
        from_bytes = e.read(extra, "u32", ins.line)
    elif extra is not None and not ins.has("L2::cache_hint"):
        raise Unsupported(f"{ins.opcode} with {extra}", ins.line)
    elif ins.find("cache") is not None:
        raise Unsupported(f"{ins.opcode} with a source size and a cache policy", ins.line)
    args = [e.address(ins, "dst", "shared"), e.address(ins, "src", "global"), from_bytes, e.active(), e.site()]
    e.runtime(f"cp.async.{size}", "void", args)


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "mov": mov,
    "ld": ld,
    "ldu": ldu,
    "st": st,
    "cvta": cvta,
    "isspacep": isspacep,
    "createpolicy": createpolicy,
    "prefetch": prefetch,
    "cp": cp,
}
