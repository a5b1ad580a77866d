"""The shape and types of warp-level matrix instructions, and the tensor-core rule of each.

The table of rules is the published, hardware-validated one, that of MMA-Sim 2.1.1: a step aligns `step_k` exact
products and the accumulator to the largest exponent, truncates every term to `fraction_bits`, adds exactly, and
converts the sum.
"""

from dataclasses import dataclass

from weft.core.errors import Unsupported


@dataclass(frozen=True)
class FloatFormat:
    """A binary format: sign, `exponent_bits`, `mantissa_bits`. e4m3 has no infinity and one NaN magnitude.

    Formats of 4 and 6 bits have neither; each element has a byte, but in products of k 64 two e2m1 share one.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    storage_bits: int  # tf32 is in the upper bits of a 32-bit word; its low 13 bits are ignored
    has_infinity: bool = True
    has_nan: bool = True
    first_bit: int = 0  # of a byte that has fewer bits in use: e2m1 has bits 2 to 5 of its byte

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def min_exponent(self) -> int:
        return 1 - self.bias


FORMATS = {
    fmt.name: fmt
    for fmt in (
        FloatFormat("f16", 5, 10, 16),
        FloatFormat("bf16", 8, 7, 16),
        FloatFormat("tf32", 8, 10, 32),
        FloatFormat("f32", 8, 23, 32),
        FloatFormat("f64", 11, 52, 64),
        FloatFormat("e4m3", 4, 3, 8, has_infinity=False),
        FloatFormat("e5m2", 5, 2, 8),
        FloatFormat("e3m2", 3, 2, 8, has_infinity=False, has_nan=False),
        FloatFormat("e2m3", 2, 3, 8, has_infinity=False, has_nan=False),
        FloatFormat("e2m1", 2, 1, 8, has_infinity=False, has_nan=False, first_bit=2),
    )
}
SMALL_TYPES = ("e3m2", "e2m3", "e2m1")
F8F6F4 = ("e4m3", "e5m2", *SMALL_TYPES)
SCALE_TYPES = ("ue8m0", "ue4m3")
GROUP = 16
"""Products of k 64 that are added exactly before they are scaled."""
INTEGER_TYPES = ("s8", "u8")
STORAGE_BITS = {**{name: fmt.storage_bits for name, fmt in FORMATS.items()}, "s8": 8, "u8": 8, "s32": 32}
WGMMA = "wgmma"
"""In place of an architecture: the warpgroup instructions of sm_90a, whose fp8 rule is not that of its `mma.sync`."""


@dataclass(frozen=True)
class MmaKind:
    """One row of the `mma` table, e.g. MmaKind(16, 8, 16, "f16", "f16", "f32", "f32")."""

    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    satfinite: bool = False  # integer kinds only: clamp to s32 instead of wrapping
    rounding: str = "rn"  # of every fused multiply-add of an f64 kind
    scale_type: str = ""  # ue8m0 or ue4m3, if A and B have scales
    scales: int = 0  # of a row of A and a column of B: 1, 2 or 4

    @property
    def label(self) -> str:
        types = f"{self.d_type}.{self.a_type}.{self.b_type}.{self.c_type}"
        options = (".satfinite" if self.satfinite else "") + (f".{self.rounding}" if self.rounding != "rn" else "")
        scale = f".{self.scale_type}x{self.scales}" if self.scale_type else ""
        return f"m{self.m}n{self.n}k{self.k}.{types}{options}{scale}"

    @property
    def is_integer(self) -> bool:
        return self.a_type in INTEGER_TYPES

    @property
    def is_fp8(self) -> bool:
        return self.a_type in ("e4m3", "e5m2") and not self.is_small

    @property
    def is_small(self) -> bool:
        """Whether it is one of the kinds that only sm_120a has: operands of 4 or 6 bits, or with scales."""
        return bool(self.scale_type) or self.a_type in SMALL_TYPES or self.b_type in SMALL_TYPES

    @property
    def element_bits(self) -> int:
        """Return the bits of an element of A and B in registers."""
        return 4 if self.k == 64 else STORAGE_BITS[self.a_type]


@dataclass(frozen=True)
class FusedRule:
    """Products per step, bits kept when aligning, bits kept in an f32 result, exponent of a term that is zero."""

    step_k: int
    fraction_bits: int
    result_bits: int
    zero_exponent: int


_SHAPES = {  # type of A -> K of m16n8kK
    **dict.fromkeys(("f16", "bf16"), (8, 16)),
    "tf32": (4, 8),
    **dict.fromkeys(("e4m3", "e5m2", "s8", "u8"), (16, 32)),
    **dict.fromkeys(("e3m2", "e2m3"), (32,)),
    "e2m1": (32, 64),
}

_F64_SHAPES = ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16))


def check_kind(kind: MmaKind) -> None:
    """Raise Unsupported unless the combination of shape and types has a row."""
    accumulators = (kind.c_type, kind.d_type)
    if kind.a_type == "f64":
        shape = (kind.m, kind.n, kind.k) in _F64_SHAPES
        known = shape and (kind.b_type, *accumulators) == ("f64",) * 3 and not kind.satfinite
    elif kind.rounding != "rn" or (kind.m, kind.n) != (16, 8) or kind.k not in _SHAPES.get(kind.a_type, ()):
        known = False
    elif kind.is_integer:
        known = kind.b_type in INTEGER_TYPES and accumulators == ("s32", "s32")
    elif kind.satfinite:
        known = False
    elif kind.is_small:
        known = _known_small(kind)
    elif kind.is_fp8:
        known = kind.b_type in ("e4m3", "e5m2") and accumulators in (("f32", "f32"), ("f16", "f16"))
    elif kind.a_type == "f16":
        known = kind.b_type == "f16" and accumulators in (("f32", "f32"), ("f16", "f16"))
    else:
        known = kind.b_type == kind.a_type and accumulators == ("f32", "f32")
    if not known:
        raise Unsupported(f"mma {kind.label}")


def _known_small(kind: MmaKind) -> bool:
    types, accumulators = (kind.a_type, kind.b_type), (kind.c_type, kind.d_type)
    if kind.k == 64:
        scale = (kind.scale_type, kind.scales) in (("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4))
        return scale and types == ("e2m1", "e2m1") and accumulators == ("f32", "f32")
    scale = (kind.scale_type, kind.scales) in (("", 0), ("ue8m0", 1))
    halves = not kind.scale_type and accumulators == ("f16", "f16")
    return scale and kind.k == 32 and set(types) <= set(F8F6F4) and (halves or accumulators == ("f32", "f32"))


def fused_rule(kind: MmaKind, arch: str) -> FusedRule:
    """Return the rule of a floating-point kind (not f64, whose rule is in vm/reference/tensorcore.py)."""
    check_kind(kind)
    half = kind.d_type == "f16"
    if kind.is_small:  # only code for sm_120a has it, so there is one rule
        return FusedRule(64, 35, 23, -139) if kind.k == 64 else FusedRule(32, 25, 23, -21 if half else -133)
    early = arch in ("sm_80", "sm_86", "sm_87", "sm_89")
    if not early and arch not in ("sm_90", "sm_120", WGMMA):
        raise Unsupported(f"tensor-core rounding of {arch}")
    zero = (-20 if half else -132) if early else (-21 if half else -133)
    if not kind.is_fp8:
        early_step = 4 if kind.a_type == "tf32" else 8
        return FusedRule(early_step, 24, 23, zero) if early else FusedRule(kind.k, 25, 23, zero)
    if arch == "sm_120":
        return FusedRule(kind.k, 25, 23, zero)
    if arch not in ("sm_89", WGMMA):
        raise Unsupported(f"mma {kind.label} on {arch}: its rounding is not known")
    return FusedRule(16 if early else kind.k, 13, 13, zero)


def half_kind(kind: MmaKind, arch: str) -> MmaKind | None:
    """Return the kind that computes each half of an fp8 `mma`, if the architecture has no instruction for it.

    On sm_90 ptxas (13.0, 13.4) converts bytes 0 and 1 of every word to f16 and multiplies them with C = 0, then bytes
    2 and 3, which it adds to that, and then adds C with one rounding.
    """
    if not kind.is_fp8 or arch != "sm_90":
        return None
    return MmaKind(kind.m, kind.n, kind.k // 2, "f16", "f16", kind.c_type, kind.d_type)


@dataclass(frozen=True)
class WmmaPart:
    """One m16n8 instruction of a wmma: its registers of A, B and C. None means eight absent rows."""

    a: tuple[int | None, ...]
    b: tuple[int, ...]
    c: tuple[int | None, ...]


def wmma_parts(m: int, n: int, k: int, *, a_type: str, c_type: str) -> tuple[WmmaPart, ...]:
    """Return the m16n8 instructions that carry out a wmma (an 8-row one leaves rows 8-15 unused)."""
    depth = k * STORAGE_BITS[a_type] // 128  # registers of one 8-row strip of A, and of one 8-column strip of B
    wide = 2 if c_type != "f16" else 1  # accumulator registers of an 8 x 8 block
    parts = []
    for row in range(max(m // 16, 1)):
        for column in range(n // 8):
            block = row * (n // 8) + column
            b = tuple(range(column * depth, (column + 1) * depth))
            if m == 8:
                a = tuple(x for i in range(depth) for x in (i, None))
                c: tuple[int | None, ...] = (*range(block * wide, (block + 1) * wide), *(None,) * wide)
            else:
                a = tuple(range(2 * row * depth, 2 * (row + 1) * depth))
                c = tuple(range(2 * block * wide, 2 * (block + 1) * wide))
            parts.append(WmmaPart(a, b, c))
    return tuple(parts)


__all__ = [
    "F8F6F4",
    "FORMATS",
    "GROUP",
    "INTEGER_TYPES",
    "SCALE_TYPES",
    "SMALL_TYPES",
    "WGMMA",
    "FloatFormat",
    "FusedRule",
    "MmaKind",
    "WmmaPart",
    "check_kind",
    "fused_rule",
    "half_kind",
    "wmma_parts",
]
