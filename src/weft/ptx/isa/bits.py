"""Logic, shifts and byte permutes (PTX ISA 9.7.8 and 9.7.9.7)."""

from .facts import COMPUTES, Facts
from .form import Form, computing

_f = computing("bits", COMPUTES)
_permute = computing("bits", Facts(converts=("a", "b")))
_BITS = "b16 b32 b64"

ROWS: tuple[Form, ...] = (
    _f("and", "9.7.8.1", "and.type d, a, b", type=f"pred {_BITS}"),
    _f("or", "9.7.8.2", "or.type d, a, b", type=f"pred {_BITS}"),
    _f("bitwise", "9.7.8.3", "xor.type d, a, b", type=f"pred {_BITS}"),
    _f("bitwise", "9.7.8.4", "not.type d, a", type=f"pred {_BITS}"),
    _f("", "9.7.8.5", "cnot.type d, a", type=_BITS),
    _f("", "9.7.8.6", "lop3.b32 d, a, b, c, lut"),
    _f("", "9.7.8.6", "lop3.bool.b32 d|p, a, b, c, lut, q:pred", bool="and or"),
    _f("", "9.7.8.7", "shf.dir.mode.b32 d, a, b, c:u32", dir="l r", mode="clamp wrap"),
    _f("shift left", "9.7.8.8", "shl.type d, a, b:u32", type=_BITS),
    _f("shift right", "9.7.8.9", "shr.type d, a, b:u32", type=f"{_BITS} u16 u32 u64 s16 s32 s64"),
    _permute("permute", "9.7.9.7", "prmt.b32{.mode} d, a, b, c", mode="f4e b4e rc8 ecl ecr rc16"),
)
