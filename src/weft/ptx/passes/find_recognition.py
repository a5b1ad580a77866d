"""Comparisons by which a kernel could tell one call from another: of inputs, addresses, clocks or sizes with constants.

    ld.global.nc.u16 %rs1, [%rd4];  cvt.f32.f16 %f1, %rs1;  setp.eq.f32 %p1, %f1, 0f3E00B000;   an input's own bits
    mov.u32 %r1, %smid;             setp.eq.s32 %p2, %r1, 7;                                     which SM it runs on

Attention compares scores with scores, with zero and with infinity, and indices with sizes. It does not ask whether an
element of Q is 0.1256. Every register has the set of what its definitions are made of, to a fixed point; the order of
instructions does not matter. Arithmetic on an input is no input any more: only what is loaded, moved, converted or
unpacked counts.
"""

import struct
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from ..module import WIDTH, FloatImm, Function, Imm, Instruction, Mem, Operand, Reg, Special, Sym, Vec
from .find_waits import state_space

DATA, ARRAY, SIZE = "data", "array", "size"
"""What a parameter is: an input of floating-point numbers, another array, an integer."""

Roles = Mapping[str, tuple[str, str]]
"""Parameter → one of these, and the name that the user knows it by."""

LEAST_SIZES = 4
"""So many sizes that no tile explains, each tested for equality, are a list of shapes."""
ROUND, FEW = 8, 8
"""Multiples of the first and numbers up to the second are sizes of tiles, heads and groups."""

_CHIP = frozenset(
    f"%{name}" for name in "clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi smid nsmid gridid".split()
)
_COPIES = frozenset(["mov", "cvt", "cvta", "selp", "prmt", "bfe"])
_LARGEST = (65504.0, (2 - 2.0**-23) * 2.0**127, (2 - 2.0**-7) * 2.0**127, 448.0, 57344.0)
"""Of f16, f32, bf16, e4m3 and e5m2."""
_PLAIN_BITS = frozenset(
    [0, 0x8000, 0x7FFF, 0xFFFF, 0x7C00, 0xFC00, 0x7BFF, 0xFBFF, 0x7F80, 0xFF80, 0x7F7F, 0xFF7F, 0x7FC0, 0x7E00]
)  # fmt: skip
"""16 bits that are zero, infinite, NaN or the largest number; a float's upper half too."""

_CONSTANT, _OTHER = ("constant", ""), ("other", "")
_ADDRESS, _BITS, _SHIFTED, _NUMBER, _MACHINE = "address", "bits", "shifted", "number", "machine"
Made = frozenset[tuple[str, str]]
"""What a register's definitions are made of: a kind, and the parameter or special register."""


@dataclass(frozen=True)
class Recognition:
    """One comparison, and what it tells apart."""

    what: str
    instruction: Instruction
    machine: bool = False
    """Whether it is about a clock, an SM or a launch, as in the time limits of waiting loops."""


def find_recognition(function: Function, roles: Roles) -> tuple[Recognition, ...]:
    """The comparisons of a kernel with its calls in place and its constants folded, in program order."""
    code = [item for item in function.body if isinstance(item, Instruction)]
    made, definitions = _what_registers_are_made_of(code, roles), _definitions(code)
    arrays = {name for kind, name in roles.values() if kind == DATA}
    found: list[Recognition] = []
    sizes: dict[str, dict[int, Instruction]] = {}
    for ins in code:
        if ins.form.name not in ("set", "setp"):
            continue
        sides = [_made(ins.operand(side), made) for side in "ab"]
        machine = sorted(name for side in sides for kind, name in side if kind == _MACHINE)
        if machine:
            found.append(Recognition(f"{machine[0]}, the clock, SM or launch it runs on", ins, machine=True))
            continue
        for whole, other in zip(sides, "ba", strict=True):
            constant, varying = _literal(ins.operand(other), definitions), whole - {_CONSTANT}
            if constant is None or not varying:
                continue
            kinds, name, equality = {kind for kind, _ in varying}, min(varying)[1], ins.mods["cmp"] in ("eq", "ne")
            if kinds == {_BITS} and name in arrays and not _plain(constant, ins.type):
                found.append(Recognition(f"an element of {name} with {_spelled(constant)}", ins))
            elif kinds == {_SHIFTED} and name in arrays and equality:
                found.append(Recognition(f"an element of {name} with a constant", ins))
            elif kinds == {_ADDRESS} and _spelled(constant) != "0":
                found.append(Recognition(f"the address of {name} with {_spelled(constant)}", ins))
        for name, size in _equals(ins, made, definitions):
            if size > FEW and size % ROUND:
                sizes.setdefault(name, {}).setdefault(size, ins)
    for name, tested in sizes.items():
        if len(tested) >= LEAST_SIZES:
            listed = ", ".join(map(str, sorted(tested)))
            shown = max(tested.values(), key=_has_line)
            found.append(Recognition(f"{name} with a list of sizes: {listed}", shown))
    return tuple(found)


def _has_line(ins: Instruction) -> bool:
    """Whether the compiler knows its line: what it made of several lines has line 0."""
    return ins.place is not None and ins.place.line > 0


def _what_registers_are_made_of(code: list[Instruction], roles: Roles) -> dict[str, Made]:
    made: dict[str, Made] = {}
    changed = True
    while changed:
        changed = False
        for ins in code:
            written = [reg.name for reg in ins.written()]
            if not written:
                continue
            result = _result(ins, made, roles)
            for name in written:
                known = made.get(name, frozenset())
                if not result <= known:
                    made[name] = known | result
                    changed = True
    return made


def _definitions(code: list[Instruction]) -> dict[str, Instruction]:
    """Registers with one definition."""
    found: dict[str, Instruction | None] = {}
    for ins in code:
        for reg in ins.written():
            found[reg.name] = None if reg.name in found else ins
    return {name: ins for name, ins in found.items() if ins is not None}


def _literal(operand: Operand, definitions: Mapping[str, Instruction]) -> Imm | FloatImm | None:
    """The literal that an operand is, or is made of by moves and conversions."""
    source = _uncopied(operand, definitions)
    return source if isinstance(source, Imm | FloatImm) else None


def _uncopied(operand: Operand | None, definitions: Mapping[str, Instruction]) -> Operand | None:
    """What a chain of moves and conversions starts with."""
    for _ in definitions:
        ins = definitions.get(operand.name) if isinstance(operand, Reg) else None
        if ins is None or ins.form.name not in ("mov", "cvt"):
            break
        operand = ins.operand("a")
    return operand


def _equals(
    ins: Instruction, made: Mapping[str, Made], definitions: Mapping[str, Instruction]
) -> Iterator[tuple[str, int]]:
    """Sizes that a comparison tests for equality: n == 77, or (1 << (n - 45) & mask) != 0, which stands for several."""
    if ins.mods["cmp"] not in ("eq", "ne"):
        return
    a, b = ins.operand("a"), _literal(ins.operand("b"), definitions)
    if not isinstance(b, Imm):
        return
    name = _size(a, made)
    if name:
        yield name, b.value
    chosen = definitions.get(a.name) if isinstance(a, Reg) and b.value == 0 else None
    mask = chosen.find("b") if chosen is not None and chosen.form.name == "and" else None
    bit = _definition(chosen.operand("a"), definitions) if chosen is not None and isinstance(mask, Imm) else None
    if bit is None or bit.form.name != "shl" or _literal(bit.operand("a"), definitions) != Imm(1):
        return
    assert isinstance(mask, Imm)
    number, offset = _uncopied(bit.operand("b"), definitions), 0
    moved = _definition(number, definitions)
    if moved is not None and moved.form.name == "add" and isinstance(by := moved.operand("b"), Imm):
        number, offset = moved.operand("a"), -by.value
    if name := _size(number, made):
        yield from ((name, at + offset) for at in range(64) if mask.value >> at & 1)


def _definition(operand: Operand | None, definitions: Mapping[str, Instruction]) -> Instruction | None:
    return definitions.get(operand.name) if isinstance(operand, Reg) else None


def _size(operand: Operand | None, made: Mapping[str, Made]) -> str:
    """The parameter that an operand is, if it is a size."""
    whole = _made(operand, made) if operand is not None else frozenset()
    return min(whole)[1] if {kind for kind, _ in whole} == {_NUMBER} else ""


def _result(ins: Instruction, made: Mapping[str, Made], roles: Roles) -> Made:
    """What an instruction writes; nothing while what it reads is not known yet."""
    name = ins.form.name
    if name in ("ld", "ldu"):
        return frozenset(_loaded(ins, made, roles))
    if name in ("atom", "shfl", "mma", "wmma", "ldmatrix", "call"):
        return frozenset([_OTHER])
    sources = [_made(operand, made) for operand in _sources(ins)]
    everything = frozenset[tuple[str, str]]().union(*sources)
    machine = frozenset(tag for tag in everything if tag[0] == _MACHINE)
    if machine:
        return machine
    if name in _COPIES or _unpacks(ins):
        operands = sources[:2] if name == "selp" else sources[:1] if name in ("bfe",) else sources
        return frozenset[tuple[str, str]]().union(*operands) - (
            frozenset([_CONSTANT]) if name == "prmt" else frozenset()
        )
    if not all(sources):
        return frozenset()
    return frozenset(_computed(ins, everything))


def _loaded(ins: Instruction, made: Mapping[str, Made], roles: Roles) -> Iterator[tuple[str, str]]:
    at = ins.operand("a")
    base = at.base if isinstance(at, Mem) else at
    if isinstance(base, Sym):
        kind, name = roles.get(base.name, ("", ""))
        yield {DATA: (_ADDRESS, name), ARRAY: (_ADDRESS, name), SIZE: (_NUMBER, name)}.get(kind, _OTHER)
    elif state_space(ins) not in ("global", "generic") or not isinstance(base, Reg):
        yield _OTHER
    else:
        for kind, name in made.get(base.name, frozenset()):
            yield (_BITS, name) if kind == _ADDRESS else _OTHER


def _computed(ins: Instruction, everything: Set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Arithmetic: an address stays one when it is moved; an input's bits moved by a constant are still known by it."""
    name = ins.form.name
    kinds = {kind for kind, _ in everything}
    if name in ("add", "sub", "mad") and _ADDRESS in kinds:
        yield from (tag for tag in everything if tag[0] == _ADDRESS)
    elif name in ("add", "sub", "xor") and kinds <= {_BITS, "constant"} and ins.form.chapter != "floating":
        yield from ((_SHIFTED, param) for kind, param in everything if kind == _BITS)
    else:
        yield _OTHER


def _unpacks(ins: Instruction) -> bool:
    """One half of a word: x & 0xffff, x >> 16, x << 16."""
    b = ins.find("b")
    if not isinstance(b, Imm):
        return False
    return b.value == 16 if ins.form.name in ("shl", "shr") else ins.form.name == "and" and b.value in (0xFFFF, -65536)


def _sources(ins: Instruction) -> list[Operand]:
    specs = zip(ins.form.operands, ins.operands, strict=False)
    return [operand for spec, operand in specs if not spec.written]


def _made(operand: Operand, made: Mapping[str, Made]) -> Made:
    match operand:
        case Reg(name=name):
            return made.get(name, frozenset())
        case Imm() | FloatImm():
            return frozenset([_CONSTANT])
        case Special(name=name):
            return frozenset([(_MACHINE, name)] if name in _CHIP else [_OTHER])
        case Vec(items=items):
            return frozenset[tuple[str, str]]().union(*(_made(item, made) for item in items))
    return frozenset([_OTHER])


def _plain(constant: Imm | FloatImm, ptx_type: str) -> bool:
    """Whether a number says nothing about which input it is held against: zero, infinity, NaN or the largest."""
    if isinstance(constant, FloatImm):
        value = _number(constant)
        return value in (0.0, float("inf"), float("-inf")) or value != value or abs(value) in _LARGEST
    bits = constant.value & ((1 << 64) - 1)
    halves = [bits >> shift & 0xFFFF for shift in range(0, WIDTH[ptx_type], 16)]
    return all(half in _PLAIN_BITS for half in halves)


def _number(constant: FloatImm) -> float:
    kind = {16: "<e", 32: "<f", 64: "<d"}[constant.width]
    return float(struct.unpack(kind, constant.bits.to_bytes(constant.width // 8, "little"))[0])


def _spelled(constant: Imm | FloatImm) -> str:
    if isinstance(constant, FloatImm):
        return f"{_number(constant):g}"
    return str(constant.value) if -4096 < constant.value < 4096 else f"{constant.value & ((1 << 64) - 1):#x}"
