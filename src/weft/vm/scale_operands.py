"""The operands of an `mma` with scales: how many a row of A has, which lanes and bytes have them (PTX ISA 9.7.14.3)."""

from weft.core.errors import Unsupported
from weft.ptx.module import Imm, Instruction, Operand, Vec

_DEFAULT = {"kind::mxf8f6f4": "scale_vec::1X", "kind::mxf4": "scale_vec::2X"}


def scales_of(ins: Instruction) -> int:
    """Return the scales of a row of A and of a column of B: 1, 2 or 4."""
    vector = ins.mods.get("scale_vec") or _DEFAULT[ins.mods["kind"]]
    return int(vector.removeprefix("scale_vec::").removesuffix("X"))


def select_of(ins: Instruction, side: str) -> tuple[Operand, Operand]:
    """Return the operands byte-id and thread-id of A (`a`) or B (`b`)."""
    given = ins.operand(f"select_{side}")
    if not isinstance(given, Vec) or len(given.items) != 2:
        raise Unsupported(f"{ins.opcode}: operand select_{side} must be two numbers in braces", ins.line)
    byte, lane = given.items
    count = scales_of(ins)
    if isinstance(byte, Imm) and byte.value not in range(0, 4, count):
        raise Unsupported(f"{ins.opcode}: no scales of {side} begin at byte {byte.value}", ins.line)
    if isinstance(lane, Imm) and lane.value not in range(2 if side == "a" else 4):
        raise Unsupported(f"{ins.opcode}: no lane {lane.value} has scales of {side}", ins.line)
    return byte, lane
