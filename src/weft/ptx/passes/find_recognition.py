"""Finds comparisons by which a kernel could recognise a call: of inputs, addresses, clocks or sizes with constants.

    ld.global.nc.u16 %rs1, [%rd4];  cvt.f32.f16 %f1, %rs1;  setp.eq.f32 %p1, %f1, 0f3E00B000;   an input's own bits
    mov.u32 %r1, %smid;             setp.eq.s32 %p2, %r1, 7;                                     which SM it runs on

Attention compares scores with scores, with zero and with infinity, and indices with sizes. It does not test whether an
element of Q is 0.1256. Every register has the set of the sources of its definitions, to a fixed point; the order of
instructions does not matter. The result of arithmetic on an input does not count as an input: only values that are
loaded, moved, converted or unpacked do.
"""

import struct
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from ..module import WIDTH, FloatImm, Function, Imm, Instruction, Mem, Operand, Reg, Special, Sym, Vec

DATA, ARRAY, SIZE = "data", "array", "size"
"""The kinds of a parameter: an input of floating-point numbers, another array, an integer."""

Roles = Mapping[str, tuple[str, str]]
"""Parameter → one of these kinds, and its name for the user."""

LEAST_SIZES = 4
"""This many sizes that no tile explains, each tested for equality, are a list of shapes."""
PAGE = 12
"""Low bits of an address: kernels test these to find its alignment, and no others."""
ROUND, FEW = 8, 8
"""Multiples of the first and numbers up to the second are sizes of tiles, heads and groups."""

_CHIP = frozenset(
    f"%{name}" for name in "clock clock_hi clock64 globaltimer globaltimer_lo globaltimer_hi smid nsmid gridid".split()
)
_MODULE_SPACES = ("global", "const", "generic")
_COPIES = frozenset(["mov", "cvt", "cvta", "selp", "prmt", "bfe"])
_LARGEST = (65504.0, (2 - 2.0**-23) * 2.0**127, (2 - 2.0**-7) * 2.0**127, 448.0, 57344.0)
"""The largest numbers of f16, f32, bf16, e4m3 and e5m2."""
_PLAIN_BITS = frozenset(
    [0, 0x8000, 0x7FFF, 0xFFFF, 0x7C00, 0xFC00, 0x7BFF, 0xFBFF, 0x7F80, 0xFF80, 0x7F7F, 0xFF7F, 0x7FC0, 0x7E00]
)  # fmt: skip
"""16 bits that are zero, infinite, NaN or the largest number; a float's upper half too."""

_CONSTANT, _OTHER = ("constant", ""), ("other", "")
_ADDRESS, _BITS, _SHIFTED, _NUMBER, _MACHINE = "address", "bits", "shifted", "number", "machine"
_VARIABLE, _KEPT = "variable", "kept"
"""The address of a variable of the module, and its content."""
Made = frozenset[tuple[str, str]]
"""The sources of a register's definitions: a kind, and the parameter or special register."""


@dataclass(frozen=True)
class Recognition:
    """One comparison, and what it recognises."""

    what: str
    instruction: Instruction
    machine: bool = False
    """Whether it is about a clock, an SM or a launch, as in the time limits of waiting loops."""


def find_recognition(function: Function, roles: Roles) -> tuple[Recognition, ...]:
    """Return the comparisons of a kernel with inlined calls and folded constants, in program order."""
    code = [item for item in function.body if isinstance(item, Instruction)]
    made, definitions = _what_registers_are_made_of(code, roles), _definitions(code)
    arrays = {name for kind, name in roles.values() if kind == DATA}
    found: list[Recognition] = []
    sizes: dict[tuple[str, int], Instruction] = {}
    for ins in code:
        if not ins.facts.compares:
            continue
        sides = [_made(ins.operand(side), made) for side in "ab"]
        machine = sorted(name for side in sides for kind, name in side if kind == _MACHINE)
        if machine:
            found.append(Recognition(f"{machine[0]}, the clock, SM or launch it runs on", ins, machine=True))
            continue
        for whole, held in (sides, sides[::-1]):
            if _only(whole) == _BITS and _only(held) == _KEPT and _name(whole) in arrays and _is_equality(ins):
                found.append(Recognition(f"an element of {_name(whole)} with the variable {_name(held)}", ins))
        for whole, other in zip(sides, "ba", strict=True):
            constant, varying = _literal(ins.operand(other), definitions), whole - {_CONSTANT}
            if constant is None or not varying:
                continue
            kind, name = _only(whole), _name(whole)
            if kind == _BITS and name in arrays and not _plain(constant, ins.type):
                found.append(Recognition(f"an element of {name} with {_spelled(constant)}", ins))
            elif kind == _SHIFTED and name in arrays and _is_equality(ins):
                found.append(Recognition(f"an element of {name} with a constant", ins))
            elif kind == _ADDRESS and _spelled(constant) != "0":
                found.append(Recognition(f"the address of {name} with {_spelled(constant)}", ins))
        for name, size in _equals(ins, made, definitions):
            if size > FEW and size % ROUND:
                sizes.setdefault((name, size), ins)
    if len(sizes) >= LEAST_SIZES:
        listed = ", ".join(f"{name} == {size}" for name, size in sorted(sizes))
        found.append(Recognition(f"sizes with a list of sizes: {listed}", max(sizes.values(), key=_has_line)))
    return tuple(found)


def _only(whole: Made) -> str:
    """Return the only kind of source of a value apart from constants; empty if there are several."""
    kinds = {kind for kind, _ in whole - {_CONSTANT}}
    return min(kinds) if len(kinds) == 1 else ""


def _name(whole: Made) -> str:
    return min(whole - {_CONSTANT})[1]


def _is_equality(ins: Instruction) -> bool:
    return ins.mods["cmp"] in ("eq", "ne", "equ", "neu")


def _has_line(ins: Instruction) -> bool:
    """Return whether the compiler gives its line: code that it made from several lines has line 0."""
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
    """Return the registers with one definition."""
    found: dict[str, Instruction | None] = {}
    for ins in code:
        for reg in ins.written():
            found[reg.name] = None if reg.name in found else ins
    return {name: ins for name, ins in found.items() if ins is not None}


def _literal(operand: Operand, definitions: Mapping[str, Instruction]) -> Imm | FloatImm | None:
    """Return the literal that an operand is, directly or through moves and conversions."""
    source = _uncopied(operand, definitions)
    return source if isinstance(source, Imm | FloatImm) else None


def _uncopied(operand: Operand | None, definitions: Mapping[str, Instruction]) -> Operand | None:
    """Return the start of a chain of moves and conversions."""
    for _ in definitions:
        ins = definitions.get(operand.name) if isinstance(operand, Reg) else None
        if ins is None or (ins.copied is None and not (ins.facts.converts and "dtype" in ins.mods)):
            break
        operand = ins.operand("a")
    return operand


def _equals(
    ins: Instruction, made: Mapping[str, Made], definitions: Mapping[str, Instruction]
) -> Iterator[tuple[str, int]]:
    """Yield the sizes that a comparison tests for: n == 77, or (1 << (n - 45) & mask) != 0, which tests several."""
    if not _is_equality(ins):
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
    """Return the parameter that an operand is, if it is a size."""
    whole = _made(operand, made) if operand is not None else frozenset()
    return min(whole)[1] if {kind for kind, _ in whole} == {_NUMBER} else ""


def _result(ins: Instruction, made: Mapping[str, Made], roles: Roles) -> Made:
    """Return the sources of an instruction's result; nothing while those of its operands are not known yet."""
    name = ins.form.name
    if ins.facts.is_load:
        return frozenset(_loaded(ins, made, roles))
    if ins.facts.result == "lane":
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
    if isinstance(base, Sym) and ins.space != "param":
        yield (_KEPT, base.name) if ins.space in _MODULE_SPACES else _OTHER
    elif isinstance(base, Sym):
        kind, name = roles.get(base.name, ("", ""))
        yield {DATA: (_ADDRESS, name), ARRAY: (_ADDRESS, name), SIZE: (_NUMBER, name)}.get(kind, _OTHER)
    elif ins.space not in _MODULE_SPACES or not isinstance(base, Reg):
        yield _OTHER
    else:
        for kind, name in made.get(base.name, frozenset()):
            yield {_ADDRESS: (_BITS, name), _VARIABLE: (_KEPT, name)}.get(kind, _OTHER)


def _computed(ins: Instruction, everything: Set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the sources after arithmetic: a moved address is an address; bits moved by a constant are an input."""
    name = ins.form.name
    kinds = {kind for kind, _ in everything}
    if name in ("add", "sub", "mad") and kinds & {_ADDRESS, _VARIABLE}:
        yield from (tag for tag in everything if tag[0] in (_ADDRESS, _VARIABLE))
    elif kinds == {_ADDRESS, "constant"} and _drops_low_bits(ins):
        yield from (tag for tag in everything if tag[0] == _ADDRESS)
    elif name in ("add", "sub", "xor") and kinds <= {_BITS, "constant"} and ins.form.chapter != "floating":
        yield from ((_SHIFTED, param) for kind, param in everything if kind == _BITS)
    else:
        yield _OTHER


def _drops_low_bits(ins: Instruction) -> bool:
    """Return whether it is x >> 40, or x & 0xffff…0000: not a test of alignment."""
    b = ins.find("b")
    if not isinstance(b, Imm):
        return False
    return b.value >= PAGE if ins.form.name == "shr" else ins.form.name == "and" and b.value % (1 << PAGE) == 0


def _unpacks(ins: Instruction) -> bool:
    """Return whether it takes one half of a word: x & 0xffff, x >> 16, x << 16."""
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
        case Sym(name=name):
            return frozenset([(_VARIABLE, name)])
        case Imm() | FloatImm():
            return frozenset([_CONSTANT])
        case Special(name=name):
            return frozenset([(_MACHINE, name)] if name in _CHIP else [_OTHER])
        case Vec(items=items):
            return frozenset[tuple[str, str]]().union(*(_made(item, made) for item in items))
    return frozenset([_OTHER])


def _plain(constant: Imm | FloatImm, ptx_type: str) -> bool:
    """Return whether a comparison with this number cannot recognise an input: zero, infinity, NaN or the largest."""
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
