"""SASS opcodes with their modifiers → the unit they keep busy, as far as NVIDIA documents it.

Only documented rates may enter a bound: what is not in these tables costs its issue slot and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from weft.core.chips import TensorKind
from weft.core.errors import Unsupported

FP32 = frozenset(["FFMA", "FADD", "FMUL"])
"""Single-precision add, multiply, multiply-add."""
ALU = frozenset(["IADD3", "LOP3", "SHF", "ISETP", "IMNMX", "FSETP", "FMNMX"])
"""Integer add, logic, shift, compare, minimum, maximum."""
LSU = frozenset(["LDS", "STS", "LDG", "STG", "LDGSTS", "LD", "ST", "LDL", "STL"])
"""Instructions with 32 addresses each. ldmatrix of one or two tiles has 8 or 16 addresses and is left out."""
WHOLE_TILES = frozenset(["LDSM", "STSM"])
TENSOR = frozenset(["HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA"])
UNKNOWN_TENSOR = frozenset(["DMMA", "BMMA", "BGMMA", "OMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA"])

_SHAPES: Mapping[str, int] = {
    "1684": 16 * 8 * 4,
    "1688": 16 * 8 * 8,
    "16816": 16 * 8 * 16,
    "16832": 16 * 8 * 32,
    "16864": 16 * 8 * 64,
    "8816": 8 * 8 * 16,
    "8832": 8 * 8 * 32,
}
_WARPS_OF_A_GROUP = 4
_FP8 = frozenset(["E4M3", "E5M2"])


@dataclass(frozen=True)
class TensorInstruction:
    """The multiplication that a tensor-core instruction of a warp performs."""

    kind: TensorKind
    macs: int
    """Dense multiply-adds: with a sparse operand, those that are executed."""
    of_group: bool
    """True for wgmma: one of four warps' shares."""


def tensor_instruction(opcode: str) -> TensorInstruction:
    """Return what an opcode multiplies: `HMMA.16816.F32.BF16` is bf16 into f32, 2048; raises Unsupported if unknown."""
    name, *modifiers = opcode.split(".")
    if name not in TENSOR:
        raise Unsupported(f"{opcode} has no rate in the model: add its shape and type to model/opcodes.py")
    of_group = name.endswith("GMMA")
    macs = _group_macs(opcode, modifiers) if of_group else _warp_macs(opcode, modifiers)
    if "SP" in modifiers:
        macs //= 2
    return TensorInstruction(_kind(opcode, name, modifiers), macs, of_group)


def _warp_macs(opcode: str, modifiers: list[str]) -> int:
    found = [_SHAPES[word] for word in modifiers if word in _SHAPES]
    if len(found) != 1:
        raise Unsupported(f"shape of {opcode}: the model supports {', '.join(_SHAPES)}")
    return found[0]


def _group_macs(opcode: str, modifiers: list[str]) -> int:
    shapes = [word.split("x") for word in modifiers if word.count("x") == 2]
    if len(shapes) != 1 or not all(part.isdigit() for part in shapes[0]):
        raise Unsupported(f"shape of {opcode}: the shape of a wgmma is 64xNxK")
    m, n, k = (int(part) for part in shapes[0])
    return m * n * k // _WARPS_OF_A_GROUP


def _kind(opcode: str, name: str, modifiers: list[str]) -> TensorKind:
    if name[0] == "I":
        if {"S4", "U4"} & set(modifiers):
            return TensorKind.INT4
        if {"S8", "U8"} & set(modifiers):
            return TensorKind.INT8
        raise Unsupported(f"type of {opcode}: the model supports 8 and 4 bit integers")
    accumulates_f32 = "F32" in modifiers
    if not accumulates_f32 and "F16" not in modifiers:
        raise Unsupported(f"accumulator of {opcode}: the model supports F32 and F16")
    if name[0] == "Q":
        if not _FP8 & set(modifiers):
            raise Unsupported(f"type of {opcode}: the model supports {', '.join(sorted(_FP8))}")
        return TensorKind.FP8_F32 if accumulates_f32 else TensorKind.FP8_F16
    if "BF16" in modifiers:
        return TensorKind.BF16_F32
    if "TF32" in modifiers:
        return TensorKind.TF32_F32
    return TensorKind.F16_F32 if accumulates_f32 else TensorKind.F16_F16
