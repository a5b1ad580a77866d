"""Finds tests of mbarriers that are repeated without any change as long as they fail.

    L: mbarrier.try_wait.parity.shared.b64 %p, [%a], %odd;  @!%p bra L;                                     repeated
    L: mbarrier.try_wait.parity.shared.b64 %p, [%a], %odd;  @%p bra E;  add.u32 %n, %n, 1;  …;  @%q bra L;   %n changes

From a test that failed, control is followed with the values that are known then, until it is at the test again. On the
way no memory is accessed, no clock is read, and no register is read that an earlier round wrote.
"""

from collections.abc import Iterator

from ..module import Imm, Instruction, Not, Operand, Pair, Reg, Special
from .build_cfg import Block, Cfg

_LONGEST = 64
"""Instructions that are followed."""
_CLOCKS = ("%clock", "%globaltimer")


def find_repeats(cfg: Cfg) -> frozenset[int]:
    """Return the PTX lines of such tests; a line of which there are other copies counts only if all of them are."""
    found: dict[int, bool] = {}
    for block in cfg.blocks:
        for place, ins in enumerate(block.body):
            if is_test(ins):
                found[ins.line] = found.get(ins.line, True) and _repeats(cfg, block, place)
    return frozenset(line for line, repeats in found.items() if repeats)


def is_test(ins: Instruction) -> bool:
    """Return whether it tests an mbarrier."""
    return any(access.holds == "mbarrier" and access.verb == "load" for access in ins.facts.accesses)


def _repeats(cfg: Cfg, block: Block, place: int) -> bool:
    test = block.body[place]
    result = test.operand("p")
    if test.guard is not None or not isinstance(result, Reg):
        return False
    values: dict[str, int] = {result.name: 0}
    way = list(_way(cfg, block, place, values))
    if not way or way[-1] is not test:
        return False
    later = {reg.name for ins in way for reg in ins.written()}
    for ins in way:
        if any(reg.name in later and reg.name != result.name for reg in ins.read()):
            return False
        later -= {reg.name for reg in ins.written()}
    return True


def _way(cfg: Cfg, block: Block, place: int, values: dict[str, int]) -> Iterator[Instruction]:
    """Yield the instructions from a test up to its next execution; fewer, if an instruction is not understood."""
    start, at = block.id, place + 1
    for _ in range(_LONGEST):
        if at < len(block.body):
            ins = block.body[at]
            yield ins
            if (block.id, at) == (start, place) or not _is_plain(ins):
                return
            at += 1
            _learn(ins, values)
            continue
        end, following = block.end, block.next
        if end is not None:
            if end.facts.control != "jump":
                return
            yield end
            taken = _holds(end, values)
            if taken is None:
                return
            following = block.targets[0] if taken else block.next
        if following is None:
            return
        block, at = cfg.blocks[following], 0


def _is_plain(ins: Instruction) -> bool:
    """Return whether an instruction only computes from its operands."""
    facts = ins.facts
    clocks = any(isinstance(each, Special) and each.name.startswith(_CLOCKS) for each in ins.operands)
    return not (facts.accesses or facts.group or facts.control or facts.starts or facts.settles or clocks)


def _holds(branch: Instruction, values: dict[str, int]) -> bool | None:
    """Return whether a branch is taken; None if that is not known."""
    if branch.guard is None:
        return True
    value = values.get(branch.guard.reg.name)
    return None if value is None else bool(value) != branch.guard.negated


def _learn(ins: Instruction, values: dict[str, int]) -> None:
    """Set the value of a result that is known, and forget that of others."""
    result = _computed(ins, values) if ins.guard is None else None
    for reg in ins.written():
        values.pop(reg.name, None)
    if result is not None and ins.operands:
        first = ins.operands[0].first if isinstance(ins.operands[0], Pair) else ins.operands[0]
        if isinstance(first, Reg):
            values[first.name] = result


def _computed(ins: Instruction, values: dict[str, int]) -> int | None:
    """Return the result of a copy, a choice, a negation of a predicate, or a test for equality, if it is known."""
    facts = ins.facts
    if ins.copied is not None:
        return _value(ins.copied, values)
    if facts.computes == "select" and ins.find("c") is not None:
        condition = _value(ins.operand("c"), values)
        return None if condition is None else _value(ins.operand("a" if condition else "b"), values)
    if facts.compares and ins.mods.get("cmp") in ("eq", "ne") and ins.find("c") is None:
        a, b = (_value(ins.operand(side), values) for side in "ab")
        return None if a is None or b is None else int((a == b) == (ins.mods["cmp"] == "eq"))
    return None


def _value(operand: Operand, values: dict[str, int]) -> int | None:
    match operand:
        case Imm(value=number):
            return number
        case Reg(name=name):
            return values.get(name)
        case Not(reg=reg):
            known = values.get(reg.name)
            return None if known is None else 1 - known
    return None
