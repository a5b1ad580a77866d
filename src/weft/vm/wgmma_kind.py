"""What a `wgmma.mma_async` or a `setmaxnreg` asks for.

Warp w of a warpgroup computes rows 16 w to 16 w + 15 of a product: N / 8 products of m16n8.
"""

import re
from dataclasses import dataclass

from weft.core.errors import Unsupported
from weft.ptx.module import Imm, Instruction, Vec

from .mma_kind import MmaKind

WARPS = 4
SWIZZLES = (0, 128, 64, 32)
"""Bits 62 and 63 of a descriptor → width of the swizzle in bytes; 0: none."""
INVALID_ADDRESS = 0xFFFFFFF0
"""An address that no shared array has: for descriptors that Weft does not support, so that the access is reported."""
BASE_OFFSET_SHIFT = 49


@dataclass(frozen=True)
class Wgmma:
    """One product: the m16n8 kind, the number of those side by side, and how its operands are given."""

    kind: MmaKind
    blocks: int
    in_registers: bool
    """Whether A is in registers."""
    negate: bool
    """Whether the products are subtracted."""
    a_by_rows: bool
    """Whether elements of one row of A follow each other (K-major)."""
    b_by_columns: bool

    @property
    def results(self) -> int:
        """Return the registers of D of one block."""
        return 2 if self.kind.d_type == "f16" else 4


def wgmma_of(ins: Instruction) -> Wgmma:
    """Return what the instruction asks for; Unsupported if its registers or constants do not fit."""
    _, n, k = (int(number) for number in re.findall(r"\d+", ins.mods["shape"]))
    d_type, a_type, b_type = (ins.mods[slot] for slot in ("dtype", "atype", "btype"))
    kind = MmaKind(16, 8, k, a_type, b_type, d_type, d_type, satfinite=ins.has("satfinite"))
    a, d = ins.operand("a"), ins.operand("d")
    in_registers = isinstance(a, Vec)
    signs = [_constant(ins, name, (1, -1)) for name in ("scale_a", "scale_b") if ins.find(name) is not None]
    flags = [_constant(ins, name, (0, 1)) for name in ("trans", "trans_b") if ins.find(name) is not None]
    if ins.find("trans") is not None and len(flags) != (1 if in_registers else 2):
        raise Unsupported(f"{ins.opcode} with {len(flags)} constants for the order of elements", ins.line)
    trans_b = bool(flags and flags[-1])
    trans_a = bool(len(flags) == 2 and flags[0])
    made = Wgmma(kind, n // 8, in_registers, signs.count(-1) == 1, not trans_a, not trans_b)
    if isinstance(a, Vec) and len(a.items) != 4:
        raise Unsupported(f"{ins.opcode} with {len(a.items)} registers as operand a; it takes 4", ins.line)
    found = len(d.items) if isinstance(d, Vec) else 1
    if found != made.results * made.blocks:
        needed = made.results * made.blocks
        raise Unsupported(f"{ins.opcode} with {found} registers as operand d; it takes {needed}", ins.line)
    return made


def registers_key(ins: Instruction) -> int:
    """Return what all warps of a group must have in common in a `setmaxnreg`: its action and its count.

    It may be another instruction: Triton writes one into each partition of a warp-specialised kernel.
    """
    return 2 * register_count(ins) + (ins.mods["action"] == "inc")


def register_count(ins: Instruction) -> int:
    """Return the count of a `setmaxnreg`; Unsupported if it is no valid constant."""
    count = ins.operand("count")
    if not isinstance(count, Imm) or count.value not in range(24, 257, 8):
        raise Unsupported(f"{ins.opcode}: the count must be a constant from 24 to 256, a multiple of 8", ins.line)
    return count.value


def _constant(ins: Instruction, name: str, allowed: tuple[int, int]) -> int:
    operand = ins.operand(name)
    if not isinstance(operand, Imm) or operand.value not in allowed:
        raise Unsupported(f"{ins.opcode}: operand {name} must be {allowed[0]} or {allowed[1]}", ins.line)
    return operand.value
