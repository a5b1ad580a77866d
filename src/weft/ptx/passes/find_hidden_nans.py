"""Finds f32 registers whose NaN payload cannot be observed, so that arithmetic need not make it canonical.

PTX says that an f32 result which is NaN is 0x7fffffff. A register read only by arithmetic, comparisons, conversions
and tensor cores never shows those bits: a NaN stays a NaN, and the next result that can be seen is made canonical.
"""

from collections.abc import Iterator

from ..module import Instruction, Reg, Vec
from .build_cfg import Cfg


def find_hidden_nans(cfg: Cfg) -> frozenset[str]:
    """Return the registers whose readers all ignore NaN payloads, directly or through copies that are hidden too."""
    exposed: set[str] = set()
    copies: list[tuple[str, str]] = []
    for block in cfg.blocks:
        for ins in (*block.body, *((block.end,) if block.end else ())):
            blind = set(_blind(ins))
            passed = set(_passed_on(ins))
            for reg in ins.read():
                if reg.name in passed:
                    copies += [(reg.name, written.name) for written in ins.written()]
                elif reg.name not in blind:
                    exposed.add(reg.name)
    changed = True
    while changed:
        changed = False
        for source, target in copies:
            if target in exposed and source not in exposed:
                exposed.add(source)
                changed = True
    return frozenset(cfg.function.registers.keys() - exposed)


def _blind(ins: Instruction) -> Iterator[str]:
    """Yield the registers that `ins` reads only as f32 numbers."""
    for slot in ins.facts.numbers:
        operand = ins.find(slot)
        # The registers of a matrix are bits; the modifier has the type of its elements.
        if operand is None or ins.mods.get(f"{slot}type", ins.operand_type(slot)) != "f32":
            continue
        for item in operand.items if isinstance(operand, Vec) else (operand,):
            if isinstance(item, Reg):
                yield item.name


def _passed_on(ins: Instruction) -> Iterator[str]:
    """Yield the registers whose bits the result is: they are hidden if it is."""
    for slot in ins.facts.copies:
        operand = ins.find(slot)
        if isinstance(operand, Reg):
            yield operand.name
