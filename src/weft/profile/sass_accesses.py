"""The memory access of a SASS instruction: its kind, the bytes a lane moves, and the address as written."""

import re
from dataclasses import dataclass

from .sass_text import SassInstruction

NEVER = "!PT"
"""ptxas fills slots after LDGSTS with loads under this predicate, which have no effect."""
_VERBS = {
    "LDS": ("load", "shared"), "LDSM": ("load", "shared"), "STS": ("store", "shared"), "ATOMS": ("atomic", "shared"),
    "LDG": ("load", "global"), "STG": ("store", "global"), "ATOMG": ("atomic", "global"), "RED": ("atomic", "global"),
    "REDG": ("atomic", "global"), "LDGSTS": ("copy", "global"),
    "LD": ("load", "generic"), "ST": ("store", "generic"), "ATOM": ("atomic", "generic"),
}  # fmt: skip
_ADDRESS = re.compile(r"\[([^\]]*?)(?:\+(-?0x[0-9a-f]+))?\]")
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1}
_REGISTER = re.compile(r"(U?R)(\d+)\b")
_ONE_REGISTER = frozenset(
    ["FADD", "FFMA", "FMNMX", "FMUL", "IADD3", "IMAD", "IMNMX", "LDS", "LEA", "LOP3", "MOV", "SEL", "SHF"]
)
_MORE = frozenset(["WIDE", "64", "128"])


@dataclass(frozen=True)
class SassAccess:
    """A live memory instruction."""

    ins: SassInstruction
    block: int
    verb: str
    space: str
    bytes: int
    """Bytes per lane."""
    matrices: int = 0
    """LDSM: number of 8 x 8 matrices, each a phase of eight rows of 16 bytes."""

    @property
    def address(self) -> tuple[str, int]:
        """`[R55.X4+0x100]` → R55.X4 and 256: the registers of the address, and its immediate offset."""
        written = _ADDRESS.search(self.ins.operands)
        return (written[1], int(written[2] or "0", 16)) if written else ("", 0)


def access_of(ins: SassInstruction, block: int) -> SassAccess | None:
    """Return the access, or None for an instruction that accesses neither shared nor global memory, or never runs."""
    if ins.name not in _VERBS or ins.predicate == NEVER:
        return None
    verb, space = _VERBS[ins.name]
    if ins.name == "LDSM":
        matrices = int(ins.modifiers[-1]) if ins.modifiers[-1] in ("2", "4") else 1
        return SassAccess(ins, block, verb, space, 16, matrices)
    bytes_per_lane = next((_WIDTHS[item] for item in ins.modifiers if item in _WIDTHS), 4)
    return SassAccess(ins, block, verb, space, bytes_per_lane)


def address_registers(access: SassAccess) -> frozenset[str]:
    """`[R55.X4+UR4+0x100]` → R55 and UR4."""
    return frozenset(found[0] for found in _REGISTER.finditer(access.address[0]))


def may_write(ins: SassInstruction, register: str) -> bool:
    """Whether the instruction may change the register: a result of unknown size counts as four registers."""
    for operand in ins.operands.split(",")[:2]:
        if "[" in operand:
            return False  # a store: its operands are read
        if target := _REGISTER.match(operand.strip()):
            single = ins.name in _ONE_REGISTER and not _MORE.intersection(ins.modifiers)
            first = int(target[2])
            return register in {f"{target[1]}{number}" for number in range(first, first + (1 if single else 4))}
    return False
