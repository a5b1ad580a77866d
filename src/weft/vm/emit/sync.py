"""Barriers, warp collectives, atomics and fences."""

from collections.abc import Callable

from weft.core.errors import Unsupported
from weft.ptx.module import WIDTH, Imm, Instruction, Operand, Pair, Reg

from ..context import BAD_MASK, BARRIER_BYTES, BARRIER_COUNT, BARRIER_RESULT, WARP_WORKER, WORKER_BARRIERS
from ..ir import LANES, Value, const, lanes_of, vec, vector
from ..runtime.shape import get
from .kernel_contract import KernelContract

OPERATIONS = ("exch", "cas", "add", "inc", "dec", "min", "max", "and", "or", "xor")


def first_lane(e: KernelContract, operand: Operand, lanes: Value, line: int) -> Value:
    """Return a u32 operand on which the lanes must agree, taken from the first of them."""
    if isinstance(operand, Imm):
        return const("i32", operand.value)
    width, e.lanes = e.lanes, LANES
    value = e.read(operand, "u32", line)
    e.lanes = width
    first = e.b.intrinsic("cttz", "i32", [lanes, const("i1", 0)])
    return e.b.extract(value, e.b.op("and", first, const("i32", LANES - 1)))


# -- CTA barriers ---------------------------------------------------------------------------------------------------


def arrive(e: KernelContract, ins: Instruction, lanes: Value, *, waits: bool = True) -> None:
    """Count the arrival of `lanes` at the barrier."""
    number = first_lane(e, ins.operand("a"), lanes, ins.line)
    count = ins.operand("c") if ins.has("red") and ins.find("e") is not None else ins.find("b")
    expected = const("i32", 0) if count is None else first_lane(e, count, lanes, ins.line)
    true = const("i32", 0)
    if ins.has("red"):
        true = e.b.op("and", lanes, _predicate_bits(e, ins, "c" if ins.find("e") is None else "e"))
    # Bit 1: the warp must arrive as a whole, as `bar` and `.aligned` require.
    aligned = ins.facts.aligned or ins.has("aligned")
    args = [number, expected, lanes, true, const("i32", (1 | 2 * aligned) if waits else 0), e.site()]
    e.runtime("barrier.arrive", "void", args)


def _predicate_bits(e: KernelContract, ins: Instruction, name: str) -> Value:
    width, e.lanes = e.lanes, LANES
    value = e.mask_bits(e.read(ins.operand(name), "pred", ins.line))
    e.lanes = width
    return value


def bar(e: KernelContract, ins: Instruction) -> None:
    """Write bar.warp.sync, bar.arrive, or the result of the bar.red that was just passed."""
    if ins.has("warp"):
        check_members(e, ins)
        _warp_sync(e, ins)
        return
    if ins.has("arrive"):
        arrive(e, ins, e.active(), waits=False)
        return
    if not ins.has("red"):
        raise Unsupported(ins.opcode, ins.line)
    b = e.b
    # A number that does not exist was reported on arrival; here it only has to stay inside the record.
    number = first_lane(e, ins.operand("a"), e.active(), ins.line)
    number = b.op("and", number, const("i32", BARRIER_COUNT - 1))
    worker = get(b, e.warp, WARP_WORKER)
    at = b.op(
        "add", b.op("mul", number, const("i32", BARRIER_BYTES)), const("i32", WORKER_BARRIERS.at + BARRIER_RESULT.at)
    )
    result = b.load("i32", b.offset(worker, b.cast("zext", at, "i64")), align=4)
    count = b.op("and", result, const("i32", 0x7FFFFFFF))
    if ins.has("popc"):
        value = count
    elif ins.mods["op"] == "or":
        value = b.icmp("ne", count, const("i32", 0))
    else:
        value = b.icmp("slt", result, const("i32", 0))
    e.dst(ins, value)


def _warp_sync(e: KernelContract, ins: Instruction) -> None:
    """Synchronise lanes that have met; lanes with different member masks are different groups."""
    mask, active = ins.operand("mask"), e.active()
    if e.met is not None:
        some, none = e.b.label("met"), e.b.label("before")
        e.b.cbr(e.b.icmp("ne", e.met, const("i32", 0)), some, none)
        e.b.place(some)
        e.runtime("warp.sync", "void", [e.met, e.site()])
        e.b.place(none)
        return
    if isinstance(mask, Imm):
        members = e.b.op("and", active, const("i32", mask.value))
        e.runtime("warp.sync", "void", [members, e.site()])
        return
    width, e.lanes = e.lanes, LANES
    each = e.read(mask, "u32", ins.line)
    e.lanes = width
    e.runtime("warp.sync.each", "void", [active, e.site(), each])


def check_members(e: KernelContract, ins: Instruction) -> None:
    """Report lanes that execute a collective whose member mask does not include them."""
    mask = ins.operand("mask")
    if isinstance(mask, Imm) and mask.value & 0xFFFFFFFF == 0xFFFFFFFF:
        return
    b, active = e.b, e.active()
    if isinstance(mask, Imm):
        named: Value = const("i32", mask.value)
    else:
        width, e.lanes = e.lanes, LANES
        each = e.read(mask, "u32", ins.line)
        e.lanes = width
        own = vector("i32", (1 << lane for lane in range(LANES)))
        named = b.cast("bitcast", b.icmp("ne", b.op("and", each, own), const(vec("i32"), 0)), "i32")
    unnamed = b.op("and", active, b.op("xor", named, const("i32", -1)))
    bad, good = b.label("unnamed"), b.label("members")
    b.cbr(b.icmp("eq", unnamed, const("i32", 0)), good, bad, likely=True)
    b.place(bad)
    e.runtime("report", "void", [const("i32", BAD_MASK), e.site(), unnamed, const("i64", 0)])
    b.place(good)


# -- warp collectives -----------------------------------------------------------------------------------------------


def vote(e: KernelContract, ins: Instruction) -> None:
    """Write the vote of the lanes of the member mask that run here and whose predicate is true."""
    check_members(e, ins)
    b = e.b
    active = e.active()
    true = b.op("and", _predicate_bits(e, ins, "a"), active)
    members = b.op("and", e.src(ins, "mask"), e.lift(active))
    true = b.op("and", e.lift(true), members)
    if ins.has("ballot"):
        e.dst(ins, true)
        return
    nothing = e.const("i32", 0)
    every, some = b.icmp("eq", true, members), b.icmp("ne", true, nothing)
    match ins.mods["mode"]:
        case "all":
            e.dst(ins, every)
        case "any":
            e.dst(ins, some)
        case _:
            e.dst(ins, b.op("or", every, b.op("xor", some, e.const("i1", 1))))


def activemask(e: KernelContract, ins: Instruction) -> None:
    e.dst(ins, e.lift(e.active()))


def elect(e: KernelContract, ins: Instruction) -> None:
    """Elect the lowest lane of the member mask that is here; lanes with different masks are different groups."""
    check_members(e, ins)
    b, mask = e.b, ins.operand("mask")
    members = b.op("and", e.read(mask, "u32", ins.line), e.lift(e.active()))
    leader = b.intrinsic("cttz", members.ty, [members, const("i1", 0)])
    e.dst(ins, leader)
    operand = ins.operand("d")
    if isinstance(operand, Pair):
        e.write(operand.second, b.icmp("eq", leader, vector("i32", range(LANES))), "pred", ins.line)


def redux(e: KernelContract, ins: Instruction) -> None:
    check_members(e, ins)
    mask = ins.operand("mask")
    if e.lanes > 1 and not isinstance(mask, Imm | Reg):
        raise Unsupported(ins.opcode, ins.line)
    width, e.lanes = e.lanes, LANES
    result = _of_members(e, ins, "redux", f"{ins.mods['op']}.{ins.type}", one_group=width == 1)
    e.lanes = width
    e.dst(ins, result if width > 1 else e.b.extract(result, 0))


def _of_members(e: KernelContract, ins: Instruction, name: str, rest: str, *, one_group: bool) -> Value:
    """Call the runtime for all lanes that are here: those with different member masks are different groups."""
    mask, active, a = ins.operand("mask"), e.active(), e.src(ins, "a")
    if one_group or isinstance(mask, Imm):
        members = e.b.op("and", first_lane(e, mask, active, ins.line), active)
        return e.runtime(f"{name}.{rest}", vec("i32"), [a, members])
    return e.runtime(f"{name}.each.{rest}", vec("i32"), [a, e.read(mask, "u32", ins.line), active])


def match(e: KernelContract, ins: Instruction) -> None:
    check_members(e, ins)
    kind = "any" if ins.has("any") else "all"
    result = _of_members(e, ins, "match", f"{kind}.b{WIDTH[ins.type]}", one_group=False)
    e.dst(ins, result)
    operand = ins.operand("d")
    if isinstance(operand, Pair):
        e.write(operand.second, e.b.icmp("ne", result, const(vec("i32"), 0)), "pred", ins.line)


def shfl(e: KernelContract, ins: Instruction) -> None:
    check_members(e, ins)
    a, mode = e.src(ins, "a"), ins.mods["mode"]
    b, c = ins.operand("b"), ins.operand("c")
    operand = ins.operand("d")
    if isinstance(b, Imm) and isinstance(c, Imm):
        sources = [source_lane(mode, lane, b.value, c.value) for lane in range(LANES)]
        value = e.b.shuffle(a, None, [lane for lane, _ in sources])
        valid = Value(vec("i1"), vector("i1", [int(ok) for _, ok in sources]).ref)
    else:
        room = e.buffer("shfl", 64)
        args = [a, e.src(ins, "b"), e.src(ins, "c"), e.active(), room]
        value = e.runtime(f"shfl.{mode}", vec("i32"), args)
        valid = e.mask_vector(e.b.load("i32", room, align=4))
    e.dst(ins, value)
    if isinstance(operand, Pair):
        e.write(operand.second, valid, "pred", ins.line)


def source_lane(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """Return the source lane and whether it is in range, by the manual's pseudo code for one lane."""
    step, clamp, segment = b & 31, c & 31, c >> 8 & 31
    first = lane & segment
    last = first | (clamp & ~segment & 31)
    match mode:
        case "up":
            source = lane - step
            valid = source >= last
        case "down":
            source = lane + step
            valid = source <= last
        case "bfly":
            source = lane ^ step
            valid = source <= last
        case _:
            source = first | (step & ~segment & 31)
            valid = source <= last
    return (source if valid else lane), valid


# -- atomics and fences ---------------------------------------------------------------------------------------------


def atom(e: KernelContract, ins: Instruction) -> None:
    operation = next(name for name in OPERATIONS if ins.has(name))
    space = e.space_of(ins)
    b = e.bits(e.src(ins, "b"))
    c = e.bits(e.src(ins, "c")) if operation == "cas" else b
    args = [e.address(ins, "a", space), e.active(), e.site(), b, c]
    old = e.runtime(f"atom.{space}.{operation}.{ins.type}", b.ty, args)
    if ins.form.returns:
        assert lanes_of(old.ty) == LANES
        e.dst(ins, _typed(e, old, ins.type))


def _typed(e: KernelContract, value: Value, ptx_type: str) -> Value:
    scalar = {"f32": "float", "f64": "double", "f16": "half"}.get(ptx_type)
    return e.as_float(value, scalar) if scalar else value


def fence(e: KernelContract, ins: Instruction) -> None:
    """Call the runtime for the race checker: memory is in program order here, in every proxy."""
    if ins.facts.fences:
        e.runtime("fence", "void", [e.active(), e.site()])
    elif ins.facts.fences_async:
        e.runtime("fence.async", "void", [e.active(), e.site()])
    elif ins.facts.fences_map == "release":
        e.runtime("fence.map.release", "void", [e.active(), e.site()])
    elif ins.facts.fences_map == "acquire":
        e.runtime("fence.map.acquire", "void", [e.active(), e.site(), e.address(ins, "a", "generic")])


EMIT: dict[str, Callable[[KernelContract, Instruction], None]] = {
    "bar": bar,
    "barrier": bar,
    "vote": vote,
    "activemask": activemask,
    "elect": elect,
    "redux": redux,
    "match": match,
    "shfl": shfl,
    "atom": atom,
    "red": atom,
    "membar": fence,
    "fence": fence,
}
