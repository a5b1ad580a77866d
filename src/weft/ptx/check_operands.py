"""Checks that the operands of an instruction have the types that its row of the table requires (PTX ISA 6.1, 9.4).

Sizes must be equal. A bit type fits every type of its size, integers fit each other, floats only themselves:

    and.b32 %r1, %p1, 1;     PTX line 7: and.b32: %p1 is a .pred register, operand a is .b32
`ld`, `st` and `cvt` also take registers that are wider than the type; predicates fit only predicates.
"""

from collections.abc import Mapping
from functools import cache

from weft.core.errors import ParseError

from .isa import Form, lookup
from .module import WIDTH, FloatImm, Imm, Instruction, Mem, Not, Operand, Pair, Reg, Special, Sym, Vec
from .special import SPECIALS

_ADDRESSES = frozenset(["b32", "u32", "s32", "b64", "u64", "s64"])


def check_operands(ins: Instruction, registers: Mapping[str, str]) -> None:
    """Raise a ParseError if an operand of `ins` does not fit; calls are checked when they are resolved."""
    if ins.guard is not None and registers[ins.guard.reg.name] != "pred":
        raise ParseError(f"guard {ins.guard.reg.name} is a .{registers[ins.guard.reg.name]} register", ins.line)
    if ins.facts.control == "call" or ("vec" not in ins.mods and _plainly_right(ins, registers)):
        return
    for spec, operand in zip(ins.form.operands, ins.operands, strict=False):
        if spec.kind == "label":
            continue
        if isinstance(operand, Mem) or spec.kind == "address":
            _check_address(ins, spec.name, spec.kind, operand, registers)
            continue
        wanted = wanted_type(ins.form, ins.mods, spec.name, len(ins.operands))
        if isinstance(operand, Vec):
            # A of wgmma is a descriptor of 64 bits, or registers of 32.
            wanted = "b32" if ins.facts.multiplies == "wgmma" else wanted
            _check_vector(ins, spec.name, operand, wanted, registers)
        elif spec.kind == "vector" and "vec" in ins.mods:
            raise ParseError(f"{ins.opcode}: operand {spec.name} must be a list of registers in braces", ins.line)
        elif isinstance(operand, Pair):
            _check(ins, spec.name, operand.first, wanted, registers)
            _check(ins, f"{spec.name}|p", operand.second, "pred", registers)
        else:
            _check(ins, spec.name, operand, wanted, registers)


def _plainly_right(ins: Instruction, registers: Mapping[str, str]) -> bool:
    """Return whether all operands are registers that fit, integers or addresses: a quick check that most pass."""
    for allowed, operand in zip(_allowed(ins.opcode, len(ins.operands)), ins.operands, strict=False):
        if isinstance(operand, Reg):
            if registers[operand.name] not in allowed:
                return False
        elif isinstance(operand, Mem):
            base = operand.base
            if allowed or (isinstance(base, Reg) and registers[base.name] not in _ADDRESSES):
                return False
        elif not isinstance(operand, Imm) or not allowed:
            return False
    return True


@cache
def _allowed(opcode: str, count: int) -> tuple[frozenset[str], ...]:
    """Return the types of registers in each place of an instruction with `count` operands; none for addresses."""
    found = lookup(opcode)
    assert found is not None
    form, mods = found
    relaxed = form.wider_registers
    return tuple(
        frozenset()
        if spec.kind in ("address", "label")
        else fitting(wanted_type(form, mods, spec.name, count), relaxed=relaxed)
        for spec in form.operands[:count]
    )


def wanted_type(form: Form, mods: Mapping[str, str], name: str, count: int) -> str:
    """Return the type of operand `name` of an instruction with `count` operands."""
    if name == "c" and form.facts.group == "cta" and count == len(form.operands):
        return "u32"  # bar.red with a number of threads in front of its predicate
    return form.operand_type(name, mods)


def _check_address(ins: Instruction, name: str, kind: str, operand: Operand, registers: Mapping[str, str]) -> None:
    if not isinstance(operand, Mem) or kind != "address":
        what = "must be an address in brackets" if kind == "address" else "must not be an address"
        raise ParseError(f"{ins.opcode}: operand {name} {what}", ins.line)
    if isinstance(operand.base, Reg) and registers[operand.base.name] not in _ADDRESSES:
        declared = registers[operand.base.name]
        raise ParseError(f"{ins.opcode}: address {operand.base.name} is a .{declared} register", ins.line)


def _check_vector(ins: Instruction, name: str, vector: Vec, wanted: str, registers: Mapping[str, str]) -> None:
    """Check a vector: `mov` splits or joins one value; in other instructions each member has the type."""
    count = int(ins.mods.get("vec", "v1")[1:])  # Triton writes braces around a single register too
    if "vec" in ins.form.slot_names and count != len(vector.items):
        raise ParseError(f"{ins.opcode}: operand {name} has {len(vector.items)} members", ins.line)
    if not (ins.facts.copies and ins.form.operands[0].kind == "vector"):
        for item in vector.items:
            _check(ins, name, item, wanted, registers)
        return
    declared = [registers[item.name] for item in vector.items if isinstance(item, Reg)]
    if not vector.items or WIDTH[wanted] % len(vector.items):
        raise ParseError(f"{ins.opcode}: operand {name} has {len(vector.items)} members", ins.line)
    part = WIDTH[wanted] // len(vector.items)
    for item_type in declared:
        if item_type == "pred" or WIDTH[item_type] != part:
            raise ParseError(f"{ins.opcode}: a .{item_type} register as one of {len(vector.items)} members", ins.line)


def _check(ins: Instruction, name: str, operand: Operand, wanted: str, registers: Mapping[str, str]) -> None:
    match operand:
        case Reg(name=register):
            declared = registers[register]
            if _may_ignore_source(ins, name) and declared == "pred":
                return
            if declared not in fitting(wanted, relaxed=ins.form.wider_registers):
                _refuse(ins, name, f"{register} is a .{declared} register", wanted)
        case Not(reg=reg):
            if not (wanted == "pred" or _may_ignore_source(ins, name)) or registers[reg.name] != "pred":
                _refuse(ins, name, f"!{reg.name} is a .{registers[reg.name]} register", wanted)
        case Special(name=special):
            given = SPECIALS[special]
            # Older PTX reads the lower half of a special register of 32 bits.
            legacy = given == "u32" and wanted in ("u16", "b16")
            if not legacy and given not in fitting(wanted, relaxed=ins.form.wider_registers):
                _refuse(ins, name, f"{special} is .{given}", wanted)
        case Sym(name=symbol):
            if wanted not in _ADDRESSES:
                _refuse(ins, name, f"{symbol} is a name", wanted)
        case FloatImm():
            if wanted == "pred" or wanted[0] in "us":
                _refuse(ins, name, "it is a floating literal", wanted)


def _may_ignore_source(ins: Instruction, name: str) -> bool:
    """Return whether the operand is ignore-src, a predicate in the place of cp.async's src-size."""
    return ins.facts.starts == "cp.async" and name == "extra"


def _refuse(ins: Instruction, name: str, what: str, wanted: str) -> None:
    raise ParseError(f"{ins.opcode}: {what}, operand {name} is .{wanted}", ins.line)


@cache
def fitting(wanted: str, *, relaxed: bool) -> frozenset[str]:
    """Return the declared types of registers that fit a type; `relaxed`: wider ones too."""
    if wanted == "pred":
        return frozenset(["pred"])
    return frozenset(declared for declared in WIDTH if declared != "pred" and _fits(declared, wanted, relaxed))


def _fits(declared: str, wanted: str, relaxed: bool) -> bool:
    given, asked = _kind(declared), _kind(wanted)
    wider = relaxed and WIDTH[declared] > WIDTH[wanted]
    if WIDTH[declared] != WIDTH[wanted] and not wider:
        return False
    if "bits" in (given, asked):
        return True
    return given == asked and not (asked == "float" and wider)


def _kind(ptx_type: str) -> str:
    """Return the kind: packed and alternate types (f16x2, bf16, tf32, e4m3x2, u16x2, …) are bits to a register."""
    if ptx_type in ("f16", "f32", "f64"):
        return "float"
    return "integer" if ptx_type[0] in "us" and ptx_type.rstrip("0123456789") in ("u", "s") else "bits"
