"""Kinds of matrix instructions, and random operands for them: bits of every class, with the sums that are difficult."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.vm.published_rules import Form
from weft.vm.mma_kind import FORMATS, STORAGE_BITS, MmaKind
from weft.vm.reference.tensorcore import mma

Array = NDArray[Any]
FP8 = ("e4m3", "e5m2")
SMALL = ("e3m2", "e2m3", "e2m1")
FLOAT_KINDS = [
    *(MmaKind(16, 8, k, "f16", "f16", acc, acc) for k in (16, 8) for acc in ("f32", "f16")),
    *(MmaKind(16, 8, k, "bf16", "bf16", "f32", "f32") for k in (16, 8)),
    *(MmaKind(16, 8, k, "tf32", "tf32", "f32", "f32") for k in (8, 4)),
    *(MmaKind(16, 8, 32, a, b, acc, acc) for a in FP8 for b in FP8 for acc in ("f32", "f16")),
    MmaKind(16, 8, 16, "e4m3", "e5m2", "f32", "f32"),
]
INTEGER_KINDS = [
    MmaKind(16, 8, k, a, b, "s32", "s32", saturate)
    for k in (32, 16)
    for a in ("s8", "u8")
    for b in ("s8", "u8")
    for saturate in (False, True)
]
CHIPS = ("wgmma", "sm_90", "sm_120", "sm_89", "sm_80")


def kind_of(form: Form) -> MmaKind:
    """Return the kind of m16n8 tiles of an instruction; a product of a warpgroup is made of them."""
    types = (form.a, form.b, form.result, form.result)
    scale = {"scale_type": form.scale, "scales": form.scales}
    return MmaKind(16, 8, form.k, *types, satfinite=form.satfinite, **scale)  # type: ignore[arg-type]


def _exists(form: Form) -> bool:
    fp8, size = form.a in FP8, STORAGE_BITS[form.a] // 8
    if form.chip == "wgmma":
        return form.k * size == 32
    return form.chip != "sm_80" or not fp8


FORMS = [
    form
    for chip in CHIPS
    for kind in (*FLOAT_KINDS, *INTEGER_KINDS)
    if _exists(form := Form(chip, kind.k, kind.a_type, kind.b_type, kind.d_type, kind.satfinite))
    and (chip == "wgmma" or not kind.is_integer)
]
_PAIRS = [(a, b) for a in (*FP8, *SMALL) for b in (*FP8, *SMALL)]
FORMS += [Form("sm_120", 32, a, b, acc) for a, b in _PAIRS for acc in ("f32", "f16") if {a, b} & set(SMALL)]
FORMS += [Form("sm_120", 32, a, b, "f32", scale="ue8m0", scales=1) for a, b in _PAIRS]
FORMS += [
    Form("sm_120", 64, "e2m1", "e2m1", "f32", scale=scale, scales=scales)
    for scale, scales in (("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4))
]
"""Every form of the later chips, and of the earlier ones. Integers are exact on every chip, so they are here once."""
REGIMES = (
    "normal", "cancellation", "denormal", "zeros", "wide", "top", "bottom", "special", "any", "sparse", "ties", "lone",
)  # fmt: skip
"""`sparse`: zeros among exponents of every size; `ties`: few powers of two, with sums near half of the smallest f16;
`lone`: one element of the result has terms, a sum of the largest significands; the others are zero."""


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], name: str, regime: str) -> Array:
    """Return bit patterns of a format: a sign, an exponent field from the regime's range, a mantissa."""
    fmt = FORMATS[name]
    mantissa_bits = fmt.mantissa_bits + (13 if name == "tf32" else 0)  # tf32: with the ignored bits set
    top = (1 << fmt.exponent_bits) - 1
    span = min(4, fmt.bias // 2)
    low, high = {
        "normal": (fmt.bias - span, fmt.bias + span),
        "cancellation": (fmt.bias - span, fmt.bias + span),
        "denormal": (0, 1),
        "zeros": (fmt.bias - span, fmt.bias + span),
        "wide": (0, top - 1),
        "top": (top - 6, top - 1),
        "bottom": (0, max(top // 4, 2)),
        "special": (0, top),
        "any": (0, top),
        "sparse": (0, top - 1),
        "ties": (max(fmt.bias - 16, 0), fmt.bias - 4),
        "lone": (fmt.bias, fmt.bias),
    }[regime]
    low, high = max(low, 0), max(high, 0)
    field = rng.integers(low, high + 1, shape, dtype=np.uint64)
    mantissa = rng.integers(0, 1 << mantissa_bits, shape, dtype=np.uint64)
    # Short mantissas make exact ties and exact cancellations common.
    short = rng.random(shape) < 0.3
    mantissa = np.where(short, mantissa >> (mantissa_bits - 1) << (mantissa_bits - 1), mantissa)
    if regime == "special":
        chosen = rng.random(shape) < 0.02
        field = np.where(chosen, top, np.minimum(field, top - 1))
        mantissa = np.where(chosen & (rng.random(shape) < 0.5), 0, mantissa)
    sign = rng.integers(0, 2, shape, dtype=np.uint64)
    if regime == "lone":
        sign[:], mantissa = sign[:, :1, :1], mantissa | ((1 << mantissa_bits) - 2)
    bits = (sign << (mantissa_bits + fmt.exponent_bits)) | (field << mantissa_bits) | mantissa
    if regime == "sparse":
        bits = np.where(rng.random(shape) < 0.4, bits & (1 << (fmt.storage_bits - 1)), bits)
    if regime == "ties":
        bits = np.where(rng.random(shape) < 0.7, 0, bits >> mantissa_bits << mantissa_bits)
    if regime == "zeros":
        rows_or_elements = rng.random(shape) < 0.6
        rows_or_elements |= rng.random((*shape[:-1], 1)) < 0.3
        bits = np.where(rows_or_elements, bits & (1 << (fmt.storage_bits - 1)), bits)
    return (bits << np.uint64(fmt.first_bit)).astype(np.dtype(f"u{fmt.storage_bits // 8}"))


def random_tiles(kind: MmaKind, regime: str, tiles: int, seed: int) -> tuple[Array, Array, Array]:
    """Return A, B and C. Integers have one regime: every byte, sums that leave s32 among them."""
    if kind.is_integer:
        return _integer_tiles(kind, tiles, seed)
    rng = np.random.default_rng([seed, REGIMES.index(regime), kind.k])
    a = random_bits(rng, (tiles, kind.m, kind.k), kind.a_type, regime)
    b = random_bits(rng, (tiles, kind.k, kind.n), kind.b_type, regime)
    if kind.k == 64:  # two e2m1 in a byte
        a, b = a[:, :, 0::2] >> 2 | a[:, :, 1::2] << 2, b[:, 0::2] >> 2 | b[:, 1::2] << 2
    c_regime = regime if rng.random() < 0.5 or regime in ("zeros", "top", "special", "ties", "lone") else "wide"
    c = random_bits(rng, (tiles, kind.m, kind.n), kind.c_type, c_regime)
    if regime == "cancellation" and not kind.scale_type:  # c = -(a b), a few units off
        sign_bit = c.dtype.type(1 << (FORMATS[kind.c_type].storage_bits - 1))
        c = (mma(a, b, np.zeros_like(c), kind=kind) ^ sign_bit) + rng.integers(0, 3, c.shape, dtype=c.dtype)
    elif regime == "lone" and kind.k < 64:
        row, column = rng.integers(0, kind.m, tiles), rng.integers(0, kind.n, tiles)
        a[np.arange(kind.m) != row[:, None]] = 0
        b.transpose(0, 2, 1)[np.arange(kind.n) != column[:, None]] = 0
        c[(np.arange(kind.m)[:, None] != row[:, None, None]) | (np.arange(kind.n) != column[:, None, None])] = 0
    elif regime == "normal":  # ordinary accumulators, also of other sizes than the products
        c = random_bits(rng, c.shape, kind.c_type, "normal")
    return a, b, c


def random_scales(form: Form, regime: str, tiles: int, seed: int) -> tuple[Array, ...]:
    """Return the scales of A and B as bytes, of every size and near 1; NaN only in the regimes that have it."""
    if not form.scale:
        return ()
    rng = np.random.default_rng([seed, REGIMES.index(regime), form.scales])
    low, high, nan = (115, 140, 255) if form.scale == "ue8m0" else (40, 72, 127)
    found = []
    for shape in ((tiles, 16, form.scales), (tiles, form.scales, 8)):
        near, any_code = (rng.integers(*limits, shape, np.uint8) for limits in ((low, high), (0, nan)))
        codes = np.where(rng.random(shape) < 0.7, near, any_code)
        if regime in ("special", "any"):
            codes = np.where(rng.random(shape) < 0.02, np.uint8(nan), codes)
        found.append(codes)
    return tuple(found)


def _integer_tiles(kind: MmaKind, tiles: int, seed: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 256, (tiles, 16, kind.k), dtype=np.uint8)
    b = rng.integers(0, 256, (tiles, kind.k, 8), dtype=np.uint8)
    c = rng.integers(0, 2**32, (tiles, 16, 8), dtype=np.uint32)
    c[::2] |= 0x7FF00000  # near the limits
    a[:8], b[:4] = 0x80, 0xFF
    return a, b, c
