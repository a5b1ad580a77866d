"""Finds f32 registers that never hold a signalling NaN, so that one instruction of the CPU gives their minimum.

The result of arithmetic is never one, but a compiler leaves out a product with 1 or a sum with 0: then it is what the
other operand is. So are copies, signs and the larger of two numbers. Other bits may be anything: those of integers and
bf16, and from memory.
"""

from collections.abc import Callable, Collection

from ..module import FloatImm, Imm, Instruction, Operand, Reg
from .build_cfg import Cfg

_AS_OPERANDS = ("smaller", "larger", "sign")
_MAY_BE_LEFT_OUT = ("sum", "difference", "product", "product and sum", "quotient")
_SIGN, _INFINITY, _QUIET = 1 << 31, 0x7F800000, 0x00400000
_NEUTRAL = (0, 0x3F800000)


def find_quiet_nans(cfg: Cfg, unset: Collection[str]) -> frozenset[str]:
    """Return those registers. `unset` may be read before they are set: they are zero then."""
    written = [
        (ins, [reg.name for reg in ins.written()])
        for block in cfg.blocks
        for ins in (*block.body, *((block.end,) if block.end else ()))
    ]
    constant = _spread(written, set(unset), _may_be_constant)
    signalling = _spread(written, set(), lambda ins, found: not _is_quiet_result(ins, found, constant))
    return frozenset(cfg.function.registers.keys() - signalling)


def is_quiet(operand: Operand, quiet: Collection[str]) -> bool:
    """Return whether an f32 operand is never a signalling NaN."""
    bits = _literal(operand)
    if bits is None:
        return isinstance(operand, Reg) and operand.name in quiet
    return not (bits & ~_SIGN > _INFINITY and not bits & _QUIET)


def _spread(
    written: list[tuple[Instruction, list[str]]], found: set[str], adds: Callable[[Instruction, set[str]], bool]
) -> set[str]:
    """Add what instructions write for which `adds` is true, until nothing more is found."""
    changed = True
    while changed:
        changed = False
        for ins, names in written:
            if not found.issuperset(names) and adds(ins, found):
                found.update(names)
                changed = True
    return found


def _literal(operand: Operand) -> int | None:
    """Return the bits of an f32 literal."""
    match operand:
        case FloatImm(bits=bits, width=32) | Imm(value=bits):
            return bits & 0xFFFFFFFF
    return None


def _sources(ins: Instruction, slots: Collection[str]) -> list[Operand]:
    return [operand for slot in slots if (operand := ins.find(slot)) is not None]


def _may_be_constant(ins: Instruction, found: set[str]) -> bool:
    """Return whether a compiler might know the result; not what comes from memory or tensor cores."""
    if ins.facts.multiplies or any(access.reads for access in ins.facts.accesses):
        return False
    firm = [isinstance(item, Reg) and item.name not in found for item in _sources(ins, ins.facts.copies or "abc")]
    if ins.facts.copies:
        return not all(firm)
    return not (ins.facts.converts or _is_arithmetic(ins)) or not any(firm)


def _is_arithmetic(ins: Instruction) -> bool:
    """Return whether an instruction computes an f32 from its operands alone."""
    facts = ins.facts
    if facts.compares or facts.accesses or ins.find("d") is None or ins.operand_type("d") != "f32":
        return False
    return bool(facts.numbers) or facts.computes in _AS_OPERANDS


def _is_quiet_result(ins: Instruction, signalling: set[str], constant: set[str]) -> bool:
    if ins.facts.multiplies:
        return ins.facts.multiplies != "wgmma" and ins.mods.get("dtype") == "f32"
    if ins.facts.copies:
        return all(_is_quiet_source(item, signalling) for item in _sources(ins, ins.facts.copies))
    if not _is_arithmetic(ins):
        return False
    if ins.facts.converts:
        return ins.operand_type("a") not in ("bf16", "f32", "f64")
    sources = _sources(ins, "abc")
    if ins.facts.computes in _AS_OPERANDS:
        return all(_is_quiet_source(item, signalling) for item in sources)
    if ins.facts.computes not in _MAY_BE_LEFT_OUT:
        return True
    neutral = [_may_be_neutral(item, constant) for item in sources]
    return all(
        _is_quiet_source(item, signalling) or not any(neutral[:number] + neutral[number + 1 :])
        for number, item in enumerate(sources)
    )


def _is_quiet_source(operand: Operand, signalling: set[str]) -> bool:
    if isinstance(operand, Reg):
        return operand.name not in signalling
    return is_quiet(operand, ())


def _may_be_neutral(operand: Operand, constant: set[str]) -> bool:
    """Return whether an operand may be known to be 0, 1 or -1."""
    if isinstance(operand, Reg):
        return operand.name in constant
    bits = _literal(operand)
    return bits is None or bits & ~_SIGN in _NEUTRAL
