"""A kernel's blocks → the steps that affect its global addresses and branches, each a function of a thread.

Only instructions that write a register used for a global address, a branch or a guard are kept; floating point and
the contents of memory are not followed and make a register unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..module import WIDTH, Guard, Imm, Instruction, Mem, Not, Operand, Pair, Reg, Special, Sym, Vec
from ..passes.build_cfg import Block, Cfg
from .numbers import COMPARE, Difference, Number, Truth, Value, actual, exact, known, made, operation

_FOLLOWED = frozenset(["mov", "cvta", "cvt", "selp", "setp", "ld", "shfl"])


Parameter = tuple[str, int, int]
"""A position in the `.param` space: variable, byte inside it, bytes read."""


class Thread(Protocol):
    """The state that a step works on."""

    registers: dict[str, Value]
    call_memory: dict[Parameter, Value]
    """The `.param` space: the kernel's parameters and those of the functions it calls."""

    def decides(self, site: Instruction, *differences: Difference) -> None:
        """Record the values on which a choice depended."""

    def compares(self, site: Instruction, numbers: tuple[Number, ...]) -> None:
        """Record a comparison of numbers that are not exact."""

    def accesses(self, site: Instruction, address: Number, offset: int) -> None:
        """Record an access of global memory."""


Step = Callable[[Thread], None]


@dataclass(frozen=True)
class Steps:
    """A block: its steps, and how it ends."""

    body: tuple[Step, ...]
    block: Block


def make_steps(cfg: Cfg) -> tuple[Steps, ...]:
    """Return every block's steps."""
    needed = _needed(cfg)
    found = []
    for block in cfg.blocks:
        kept = [
            followed_step(ins)
            for ins in block.body
            if _address(ins) or any(reg.name in needed for reg in ins.written())
        ]
        found.append(Steps(tuple(kept), block))
    return tuple(found)


def holds(thread: Thread, guard: Guard | None, site: Instruction) -> bool | None:
    """Return whether a guarded instruction runs; None if that is not known."""
    if guard is None:
        return True
    truth = thread.registers.get(guard.reg.name)
    if not isinstance(truth, Truth):
        return None
    thread.decides(site, *truth.differences)
    return truth.value != guard.negated


def _needed(cfg: Cfg) -> frozenset[str]:
    """Return the registers that addresses, branches and guards depend on, from the text alone."""
    instructions = [ins for block in cfg.blocks for ins in (*block.body, *((block.end,) if block.end else ()))]
    writers: dict[str, list[Instruction]] = {}
    for ins in instructions:
        for reg in ins.written():
            writers.setdefault(reg.name, []).append(ins)
    work = [operand.base.name for ins in instructions if (operand := _address(ins)) and isinstance(operand.base, Reg)]
    work += [ins.guard.reg.name for ins in instructions if ins.guard is not None]
    work += [reg.name for block in cfg.blocks if block.end is not None for reg in block.end.read()]
    needed: set[str] = set()
    while work:
        name = work.pop()
        if name in needed:
            continue
        needed.add(name)
        for ins in writers.get(name, ()):
            if is_followed(ins):
                work += [reg.name for reg in ins.read()]
    return frozenset(needed)


def is_followed(ins: Instruction) -> bool:
    """Return whether the result of an instruction is computed; else it is unknown."""
    types = [kind for slot, kind in ins.mods.items() if slot in ("type", "dtype", "atype") and kind in WIDTH]
    if any(kind[0] in "fe" or kind.startswith("bf") or "x2" in kind for kind in types):
        return False
    return ins.form.name in _FOLLOWED or operation(ins) is not None


def _address(ins: Instruction) -> Mem | None:
    """Return the address in global memory that an instruction reads or writes, if it may be global."""
    for access in ins.facts.accesses if ins.facts.uses_memory else ():
        operand = ins.operand(access.address)
        if access.width != "tile" and access.space(ins.mods) in ("global", "generic") and isinstance(operand, Mem):
            return operand
    return None


def followed_step(ins: Instruction) -> Step:
    """Return the step of an instruction with its guard."""
    work = _work(ins)
    if ins.guard is None:
        return work
    guard, written = ins.guard, [reg.name for reg in ins.written()]

    def guarded(thread: Thread) -> None:
        runs = holds(thread, guard, ins)
        if runs is not False:
            work(thread)
        if runs is None:
            thread.registers.update(dict.fromkeys(written))

    return guarded


def _work(ins: Instruction) -> Step:
    """Return the step of an instruction; one that is not followed makes its results unknown."""
    written = [reg.name for reg in ins.written()]
    forget = dict.fromkeys(written)
    address = _address(ins)

    def unknown(thread: Thread) -> None:
        thread.registers.update(forget)
        if address is not None and isinstance(address.base, Reg):
            at = thread.registers.get(address.base.name) if address.base.name not in forget else None
            if isinstance(at, Number):
                thread.accesses(ins, at, address.offset)

    if address is not None and isinstance(address.base, Reg) and address.base.name in forget:
        return _access_then_forget(ins, address, forget)
    if ins.space == "param" and ins.facts.accesses:
        return _parameter(ins) or unknown
    if address is not None or not is_followed(ins):
        return unknown
    match ins.form.name:
        case "setp":
            return _compare(ins)
        case "selp":
            return _select(ins)
        case "mov" | "cvta" | "shfl":
            return _copy(ins) or unknown
        case "cvt":
            return _convert(ins)
    return (_logic(ins) if ins.type == "pred" else _compute(ins)) or unknown


def _access_then_forget(ins: Instruction, address: Mem, forget: dict[str, None]) -> Step:
    """Record the access, then make the result unknown: `ld.global.u64 %rd1, [%rd1]`."""
    assert isinstance(address.base, Reg)
    base = address.base.name

    def step(thread: Thread) -> None:
        at = thread.registers.get(base)
        thread.registers.update(forget)
        if isinstance(at, Number):
            thread.accesses(ins, at, address.offset)

    return step


def _parameter(ins: Instruction) -> Step | None:
    """Return the step of `ld.param.u64 %rd1, [p]`, also for the arguments of an inlined function."""
    place = next(operand for operand in ins.operands if isinstance(operand, Mem))
    if not isinstance(place.base, Sym):
        return None
    name, at, size = place.base.name, place.base.offset + place.offset, WIDTH[ins.type] // 8
    others = [operand for operand in ins.operands if not isinstance(operand, Mem)]
    values = list(others[0].items) if isinstance(others[0], Vec) else others[:1]

    def load(thread: Thread) -> None:
        for number, value in enumerate(values):
            if isinstance(value, Reg):
                thread.registers[value.name] = thread.call_memory.get((name, at + number * size, size))

    def store(thread: Thread) -> None:
        for number, value in enumerate(values):
            thread.call_memory[name, at + number * size, size] = _value(thread, value, ins.type)

    return load if ins.facts.accesses[0].reads else store


def _compare(ins: Instruction) -> Step:
    kind, cmp = ins.type, ins.mods["cmp"]
    compare, combine = COMPARE[cmp], ins.mods.get("bool")
    ordered = cmp not in ("eq", "ne")  # two numbers that both wrapped still compare correctly
    first, *sources = ins.operands
    results = (first.first, first.second) if isinstance(first, Pair) else (first,)

    def step(thread: Thread) -> None:
        a, b = (_value(thread, source, kind) for source in sources[:2])
        if not isinstance(a, Number) or not isinstance(b, Number):
            truth: Truth | None = None
        else:
            left, right = actual(a, kind), actual(b, kind)
            truth = Truth(compare(left, right), (Difference(cmp, left - right),))
            wanted = exact(a, kind), exact(b, kind)
            if (left, right) != wanted and (ordered or truth.value != compare(*wanted)):
                thread.compares(ins, (a, b))
        both = _pair(truth)
        if combine is not None:
            other = _value(thread, sources[2], "pred")
            both = tuple(_combined(combine, each, other if isinstance(other, Truth) else None) for each in both)
        for result, value in zip(results, both, strict=False):
            if isinstance(result, Reg):
                thread.registers[result.name] = value

    return step


def _pair(truth: Truth | None) -> tuple[Truth | None, ...]:
    return (truth, _inverse(truth))


def _inverse(truth: Truth | None) -> Truth | None:
    return None if truth is None else Truth(not truth.value, truth.differences)


def _combined(how: str, a: Truth | None, b: Truth | None) -> Truth | None:
    """Compute and, or, xor of values that may be unknown: one side can decide alone."""
    deciding = {"and": False, "or": True}.get(how)
    for side in (a, b):
        if side is not None and side.value is deciding:
            return side
    if a is None or b is None:
        return None
    value = {"and": a.value and b.value, "or": a.value or b.value, "xor": a.value != b.value}[how]
    return Truth(value, a.differences + b.differences)


def _logic(ins: Instruction) -> Step | None:
    name, (target, *sources) = ins.form.name, ins.operands
    if name not in ("and", "or", "xor", "not") or not isinstance(target, Reg):
        return None

    def step(thread: Thread) -> None:
        truths = [value if isinstance(value := _value(thread, each, "pred"), Truth) else None for each in sources]
        found = _inverse(truths[0]) if name == "not" else _combined(name, truths[0], truths[1])
        thread.registers[target.name] = found

    return step


def _select(ins: Instruction) -> Step:
    target, a, b, condition = ins.operands
    assert isinstance(target, Reg)

    def step(thread: Thread) -> None:
        truth = _value(thread, condition, "pred")
        if isinstance(truth, Truth):
            thread.decides(ins, *truth.differences)
            thread.registers[target.name] = _value(thread, a if truth.value else b, ins.type)
        else:
            thread.registers[target.name] = None

    return step


def _copy(ins: Instruction) -> Step | None:
    """Copy a value; a shuffle gives the value of another lane, which is about as large as this lane's."""
    target, source = ins.operands[:2]
    target = target.first if isinstance(target, Pair) else target
    if not isinstance(target, Reg) or isinstance(source, Vec | Sym) or ins.mods.get("mode", "idx") != "idx":
        return None
    name, kind = target.name, ins.mods.get("type", "b32")
    others = [reg.name for reg in ins.written() if reg.name != name]

    def step(thread: Thread) -> None:
        thread.registers.update(dict.fromkeys(others))
        thread.registers[name] = _value(thread, source, kind)

    return step


def _convert(ins: Instruction) -> Step:
    target, source = ins.operands[:2]
    assert isinstance(target, Reg)
    to, of = ins.mods["dtype"], ins.mods["atype"]
    narrow = WIDTH[to] < 32

    def step(thread: Thread) -> None:
        number = _value(thread, source, of)
        if not isinstance(number, Number):
            thread.registers[target.name] = None
            return
        bits = actual(number, of)
        wanted = actual(known(bits, to), to) if narrow else exact(number, of)  # a conversion to a byte is on purpose
        thread.registers[target.name] = made(ins, to, bits, wanted, (number,))

    return step


def _compute(ins: Instruction) -> Step | None:
    compute, target = operation(ins), ins.operands[0]
    if compute is None or not isinstance(target, Reg):
        return None
    specs = ins.form.operands
    kinds = [ins.operand_type(spec.name) for _, spec in zip(ins.operands[1:], specs[1:], strict=False)]
    sources = [
        known(each.value, kind) if isinstance(each, Imm) else each
        for each, kind in zip(ins.operands[1:], kinds, strict=True)
    ]
    name, result = target.name, ins.operand_type(specs[0].name)
    is_choice = ins.form.name in ("min", "max")
    takes_bits = ins.form.name == "xor"  # a hash or a swizzle, not an index
    shifts_back = ins.form.name == "shr" and ins.type[0] == "s"

    def step(thread: Thread) -> None:
        numbers: list[Number] = []
        for source in sources:
            value = source if isinstance(source, Number) else _value(thread, source, "b64")
            if not isinstance(value, Number):
                thread.registers[name] = None
                return
            numbers.append(value)
        bits = [actual(number, kind) for number, kind in zip(numbers, kinds, strict=True)]
        wanted = bits
        if not takes_bits and not (shifts_back and _is_shifted(numbers[0])):
            wanted = [exact(number, kind) for number, kind in zip(numbers, kinds, strict=True)]
        found = compute(*bits)
        if is_choice:  # one of the numbers, unchanged: a negative one that is read as unsigned stays negative
            thread.decides(ins, Difference("lt", bits[0] - bits[1]))
            should = numbers[wanted.index(compute(*wanted))].exact
        else:
            should = found if wanted == bits else compute(*wanted)
        thread.registers[name] = made(ins, result, found, should, numbers)

    return step


def _is_shifted(number: Number) -> bool:
    """Return whether shl made it: an arithmetic shift back extends a sign (`x << 24 >> 24`) and needs the bits."""
    return number.maker is not None and number.maker.form.name == "shl"


def _value(thread: Thread, operand: Operand, ptx_type: str) -> Value:
    if isinstance(operand, Reg | Special):
        return thread.registers.get(operand.name)
    match operand:
        case Imm(value=value):
            return Truth(bool(value)) if ptx_type == "pred" else known(value, ptx_type)
        case Not(reg=reg):
            truth = thread.registers.get(reg.name)
            return _inverse(truth) if isinstance(truth, Truth) else None
    return None
