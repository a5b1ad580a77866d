"""Compiled tensor-core functions equal the reference bit for bit, and the reference follows the published rules."""

import re
from dataclasses import replace
from fractions import Fraction
from math import inf, nextafter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.in_turn import one_in
from tests.vm.tensorcore_jit import CompiledMma
from tests.vm.tiles import FLOAT_KINDS, INTEGER_KINDS, REGIMES, random_tiles
from weft.core.errors import Unsupported
from weft.vm.emit.tensorcore import tensorcore_ir
from weft.vm.mma_kind import FORMATS, WGMMA, MmaKind
from weft.vm.reference.tensorcore import mma, to_float64

Array = NDArray[Any]
F16 = MmaKind(16, 8, 16, "f16", "f16", "f32", "f32")
F64 = MmaKind(8, 8, 4, "f64", "f64", "f64", "f64")
MAX = float(np.finfo(np.float64).max)
F64_KINDS = [
    MmaKind(m, 8, k, "f64", "f64", "f64", "f64", rounding=rounding)
    for rounding in ("rz", "rm", "rp", "rn")
    for m, k in ((8, 4), (16, 4), (16, 8), (16, 16))
]
E4M3 = MmaKind(16, 8, 32, "e4m3", "e4m3", "f32", "f32")
TILES_PER_REGIME = 1000  # twelve regimes: 12,000 tiles for every kind and mode


def assert_same(got: Array, expected: Array, context: str) -> None:
    wrong = np.argwhere(got != expected)
    if len(wrong):
        where = tuple(int(i) for i in wrong[0])
        first = f"{got[where]:#x}, not {expected[where]:#x}"
        pytest.fail(f"{context}: {len(wrong)} differ, first at {where}: {first}")


@pytest.mark.parametrize("mode", ["hardware", "ieee"])
@pytest.mark.parametrize("kind", one_in(4, FLOAT_KINDS), ids=lambda kind: kind.label)
def test_compiled_equals_reference(kind: MmaKind, mode: str) -> None:
    compiled = CompiledMma(kind, mode=mode)
    for regime in REGIMES:
        a, b, c = random_tiles(kind, regime, TILES_PER_REGIME, seed=1)
        expected = mma(a, b, c, kind=kind, mode=mode)
        assert_same(compiled(a, b, c), expected, f"{kind.label} {mode} {regime}")


@pytest.mark.parametrize("kind", FLOAT_KINDS[::2], ids=lambda kind: kind.label)
def test_without_avx512(kind: MmaKind) -> None:
    compiled = CompiledMma(kind, cpu="x86-64-v3")
    for regime in REGIMES:
        a, b, c = random_tiles(kind, regime, 100, seed=2)
        assert_same(compiled(a, b, c), mma(a, b, c, kind=kind), f"{kind.label} {regime}")


LATER = [
    *((kind, "sm_90") for kind in FLOAT_KINDS),
    *((kind, "sm_120") for kind in FLOAT_KINDS if kind.is_fp8),
    *((kind, WGMMA) for kind in FLOAT_KINDS if kind.is_fp8 and kind.k == 32),
]
"""The rules of sm_120 and of wgmma are those of sm_90, except for fp8."""


@pytest.mark.parametrize("rule", one_in(3, LATER), ids=lambda rule: f"{rule[0].label}-{rule[1]}")
def test_rules_of_hopper_and_blackwell(rule: tuple[MmaKind, str]) -> None:
    """Sums of 16 and 32 products may leave 32 bits: the largest values are among the regimes."""
    kind, arch = rule
    compiled = CompiledMma(kind, arch=arch)
    for regime in REGIMES:
        a, b, c = random_tiles(kind, regime, 200, seed=3)
        assert_same(compiled(a, b, c), mma(a, b, c, kind=kind, arch=arch), f"{kind.label} {arch} {regime}")


def test_a_sum_that_leaves_32_bits() -> None:
    """16 products of nearly 4 and an accumulator: 2^31 units of 2^-25 and more, in both signs; one less fits."""
    near_two = np.array([0x3FFF], np.uint16)  # 1.999 in f16
    compiled = CompiledMma(F16, arch="sm_90")
    a, b = np.resize(near_two, (4, 16, 16)), np.resize(near_two, (4, 16, 8))
    b[1] |= 0x8000
    b[2:, 7] = 0x3C00  # one product of 1.999 instead of 3.998
    b[3] |= 0x8000
    for accumulator in (0.0, 3.9, -3.9):
        c = np.full((4, 16, 8), np.float32(accumulator)).view(np.uint32)
        expected = mma(a, b, c, kind=F16, arch="sm_90")
        assert_same(compiled(a, b, c), expected, f"{accumulator}")
        exact = np.einsum("tmk,tkn->tmn", *(x.view(np.float16).astype(np.float64) for x in (a, b))) + c.view(np.float32)
        np.testing.assert_allclose(expected.view(np.float32), exact, rtol=2**-22)


def test_fp8_of_sm_90_is_two_products_of_halves_and_a_sum() -> None:
    """Values that tell this from a fused sum: the halves cancel before a small C is added, and C keeps all its bits."""
    a, b = np.zeros((1, 16, 32), np.uint8), np.zeros((1, 32, 8), np.uint8)
    a[:, :, 0], a[:, :, 2] = 0x7E, 0xFE  # 448 in the first half, -448 in the second
    b[:] = 0x7E
    c = np.full((1, 16, 8), np.float32(2**-40 + 2**-60)).view(np.uint32)
    assert (mma(a, b, c, kind=E4M3, arch="sm_90") == c).all()
    assert (mma(a, b, c, kind=E4M3, arch="sm_120") == 0).all()
    c[:] = np.float32(1 + 2**-23).view(np.uint32)
    a[:, :, 2], b[:] = 0, 0x38  # 448 * 1
    assert (mma(a, b, c, kind=E4M3, arch="sm_90").view(np.float32) == np.float32(449)).all()


@pytest.mark.parametrize("kind", INTEGER_KINDS, ids=lambda kind: kind.label)
def test_integer_kinds(kind: MmaKind) -> None:
    a, b, c = random_tiles(kind, "any", 10_000, seed=4)
    got = CompiledMma(kind)(a, b, c)
    assert_same(got, mma(a, b, c, kind=kind).view(np.uint32), kind.label)


def test_f64() -> None:
    compiled = CompiledMma(F64)
    for regime in REGIMES:
        a, b, c = random_tiles(F64, regime, 100, seed=5)
        assert_same(compiled(a, b, c), mma(a, b, c, kind=F64), regime)


@pytest.mark.parametrize("kind", F64_KINDS, ids=lambda kind: kind.label)
def test_f64_of_every_shape_and_rounding(kind: MmaKind) -> None:
    compiled, together = CompiledMma(kind), CompiledMma(kind, count=2)
    for regime in REGIMES:
        a, b, c = random_tiles(kind, regime, 64 // kind.k, seed=5)
        expected = mma(a, b, c, kind=kind)
        assert_same(compiled(a, b, c), expected, regime)
        twice = together(a, np.repeat(b, 2, axis=0), np.repeat(c, 2, axis=0))
        assert_same(twice, np.repeat(expected, 2, axis=0), regime)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_f64_is_a_chain_of_fused_multiply_adds_in_increasing_k(rounding: str) -> None:
    """Every product is added exactly, then rounded: to nearest by Python, else to the neighbour on the right side."""
    kind = replace(F64_KINDS[-1], rounding=rounding)
    for regime in ("normal", "cancellation", "denormal", "bottom"):
        a, b, c = random_tiles(kind, regime, 1, seed=7)
        x, y, z = (tile[0].view(np.float64) for tile in (a, b, c))
        expected = z.copy()
        for row, column in np.ndindex(*z.shape):
            for k in range(kind.k):
                exact = Fraction(x[row, k]) * Fraction(y[k, column]) + Fraction(expected[row, column])
                expected[row, column] = _rounded(exact, rounding)
        got = mma(a, b, c, kind=kind)[0].view(np.float64)
        np.testing.assert_array_equal(got, expected)  # the sign of zero is compared with the compiled function only


@pytest.mark.parametrize(
    ("rounding", "up", "down"),
    [("rn", inf, -inf), ("rz", MAX, -MAX), ("rm", MAX, -inf), ("rp", inf, -MAX)],
)
def test_f64_overflows_as_its_rounding_says(rounding: str, up: float, down: float) -> None:
    """IEEE 754, 7.4: infinity, or the largest finite number where the rounding leads away from infinity."""
    kind = replace(F64, rounding=rounding)
    a, b = np.zeros((1, 8, 4)), np.zeros((1, 4, 8))
    a[0, :2, 0], b[0, 0] = (MAX, -MAX), 2
    bits = [each.view(np.uint64) for each in (a, b, np.zeros((1, 8, 8)))]
    for got in (mma(*bits, kind=kind), CompiledMma(kind)(*bits)):
        values = got.view(np.float64)
        assert (values[0, 0] == up).all() and (values[0, 1] == down).all()


def _rounded(exact: Fraction, rounding: str) -> float:
    near = float(exact)  # to nearest even
    above, below = Fraction(near) > exact, Fraction(near) < exact
    down = rounding == "rm" or (rounding == "rz" and exact > 0)
    up = rounding == "rp" or (rounding == "rz" and exact < 0)
    if above and down:
        return nextafter(near, -inf)
    return nextafter(near, inf) if below and up else near


@pytest.mark.parametrize("kind", FLOAT_KINDS, ids=lambda kind: kind.label)
def test_ordinary_tiles_stay_on_the_vector_path(kind: MmaKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the call of the exact path, ordinary tiles, zeros and masked rows are still right."""

    def without_exact(kind: MmaKind, mode: str, arch: str, **options: Any) -> tuple[str, str]:
        name, text = tensorcore_ir(kind, mode, arch, **options)
        text, calls = re.subn(rf"call void @{re.escape(name)}\.exact\(.*\)", "", text)
        assert calls == 1
        return name, text

    monkeypatch.setattr("tests.vm.tensorcore_jit.tensorcore_ir", without_exact)
    compiled = CompiledMma(kind)
    for regime in ("normal", "zeros"):
        a, b, c = random_tiles(kind, regime, 200, seed=6)
        a[::3] = 0
        c[::2] = 0
        assert_same(compiled(a, b, c), mma(a, b, c, kind=kind), regime)


def test_result_may_overwrite_the_accumulator() -> None:
    for regime in ("normal", "special"):
        a, b, c = random_tiles(F16, regime, 200, seed=7)
        assert_same(CompiledMma(F16)(a, b, c, in_place=True), mma(a, b, c, kind=F16), regime)


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("mode", ["hardware", "ieee"])
@pytest.mark.parametrize("kind", FLOAT_KINDS[::3], ids=lambda kind: kind.label)
def test_several_tiles_that_share_a(kind: MmaKind, mode: str, count: int) -> None:
    """Also with tiles that need the exact path next to tiles that do not."""
    compiled = CompiledMma(kind, mode=mode, count=count)
    for regime in REGIMES:
        a, b, c = random_tiles(kind, regime, 48, seed=8)
        calm = random_tiles(kind, "normal", 48, seed=9)
        a, b[::3], c[::3] = calm[0][::count], calm[1][::3], calm[2][::3]
        expected = mma(np.repeat(a, count, axis=0), b, c, kind=kind, mode=mode)
        context = f"{kind.label} {mode} {regime} x{count}"
        assert_same(compiled(a, b, c), expected, context)
        assert_same(compiled(a, b, c, in_place=True), expected, f"{context} in place")


@pytest.mark.parametrize("kind", [INTEGER_KINDS[1], F64], ids=lambda kind: kind.label)
def test_several_exact_tiles_that_share_a(kind: MmaKind) -> None:
    if kind.is_integer:
        rng = np.random.default_rng(10)
        a = rng.integers(0, 256, (10, 16, kind.k), dtype=np.uint8)
        b = rng.integers(0, 256, (40, kind.k, 8), dtype=np.uint8)
        c = rng.integers(0, 2**32, (40, 16, 8), dtype=np.uint32)
    else:
        a, b, c = random_tiles(kind, "any", 40, seed=10)
        a = a[:10]
    expected = mma(np.repeat(a, 4, axis=0), b, c.view(np.int32) if kind.is_integer else c, kind=kind)
    assert_same(CompiledMma(kind, count=4)(a, b, c), expected.view(c.dtype), kind.label)


# Hand-derived examples: one row of A, one column of B, computed on paper.


def dot(kind: MmaKind, a: list[float], b: list[float], c: float, *, mode: str = "hardware") -> float:
    """Return element (0, 0) with the given first products; the compiled function must agree."""
    matrices = [np.zeros((1, kind.m, kind.k)), np.zeros((1, kind.k, kind.n)), np.zeros((1, kind.m, kind.n))]
    matrices[0][0, 0, : len(a)] = a
    matrices[1][0, : len(b), 0] = b
    matrices[2][0, 0, 0] = c
    types = (kind.a_type, kind.b_type, kind.c_type)
    bits = [encode(x, name) for x, name in zip(matrices, types, strict=True)]
    result = mma(*bits, kind=kind, mode=mode)
    assert_same(CompiledMma(kind, mode=mode)(*bits), result, kind.label)
    return float(to_float64(result[0, 0, 0], FORMATS[kind.d_type]))


def encode(values: Array, name: str) -> Array:
    """Return exactly representable values as bits."""
    if name in ("f32", "tf32"):
        return values.astype(np.float32).view(np.uint32)
    if name == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if name == "f16":
        return values.astype(np.float16).view(np.uint16)
    patterns = np.arange(256, dtype=np.uint8)
    table = {value: bits for bits, value in zip(patterns, to_float64(patterns, FORMATS[name]), strict=True)}
    return np.asarray(np.vectorize(table.__getitem__, otypes=[np.uint8])(values))


def test_small_products_are_cut_before_the_sum() -> None:
    # E = 24, so terms keep 2^(24 - 24) = 1: each 0.75 is cut to 0, though their exact sum of 6 would count.
    assert dot(F16, [0.75] * 8, [1.0] * 8, 2.0**24) == 2.0**24
    # With 1.25 each is cut to 1: 2^24 + 8. Plain fp32 rounds 2^24 + 1.25 up to 2^24 + 2, eight times.
    assert dot(F16, [1.25] * 8, [1.0] * 8, 2.0**24) == 2.0**24 + 8
    assert dot(F16, [1.25] * 8, [1.0] * 8, 2.0**24, mode="ieee") == 2.0**24 + 16
    # With c = 2^23 the grid is 1/2: each 0.75 is cut to 0.5, the sum is 2^23 + 4 (exact would be 2^23 + 6).
    assert dot(F16, [0.75] * 8, [1.0] * 8, 2.0**23) == 2.0**23 + 4


def test_truncation_is_toward_zero_for_both_signs() -> None:
    # E = 23, grid 1/2: -0.75 is cut to -0.5, so 2^23 - 0.5, whose f32 neighbours are 1/2 apart below 2^23.
    assert dot(F16, [-0.75], [1.0], 2.0**23) == 2.0**23 - 0.5
    # 2^24 + 3 needs 25 bits: nearest even is 2^24 + 4, toward zero 2^24 + 2.
    assert dot(F16, [3.0], [1.0], 2.0**24) == 2.0**24 + 2
    assert dot(F16, [-3.0], [1.0], -(2.0**24)) == -(2.0**24) - 2
    assert dot(F16, [3.0], [1.0], 2.0**24, mode="ieee") == 2.0**24 + 4


def test_the_second_half_of_k_starts_from_the_rounded_first_half() -> None:
    # First half: 2^24 + 1 -> 2^24. Second half again. One step over all 16 would see 2 and give 2^24 + 2.
    a = [1.0] + [0.0] * 7 + [1.0]
    assert dot(F16, a, [1.0] * 9, 2.0**24) == 2.0**24
    x, y, z = np.zeros((16, 16), np.uint16), np.zeros((16, 8), np.uint16), np.zeros((16, 8), np.uint32)
    x[0, [0, 8]], y[[0, 8], 0], z[0, 0] = 0x3C00, 0x3C00, 0x4B800000
    assert mma(x, y, z, kind=F16, arch="sm_90")[0, 0] == 0x4B800001  # Hopper takes the 16 in one step


def test_product_exponent_is_not_normalised() -> None:
    # 1.5 * 1.5 = 2.25 counts with exponent 0 (not 1): with F = 24 the grid is 2^-24, so a product of 2^-24
    # survives, which subtracting 2.25 in the same step shows.
    assert dot(F16, [1.5, -1.5, 2.0**-12], [1.5, 1.5, 2.0**-12], 0.0) == 2.0**-24
    # With 2 * 1 the exponent is 1, the grid 2^-23, and the small product is lost.
    assert dot(F16, [2.0, -2.0, 2.0**-12], [1.0, 1.0, 2.0**-12], 0.0) == 0.0


def test_fp8_keeps_13_bits() -> None:
    # Grid of E = 8 is 2^(8 - 13) = 1/32: a product of 1/64 next to c = 256 vanishes; 1/32 stays.
    assert dot(E4M3, [0.015625], [1.0], 256.0) == 256.0
    assert dot(E4M3, [0.03125], [1.0], 256.0) == 256.03125
    # c itself loses what 13 bits cannot hold: 1 + 2^-14 -> 1, also when all products are zero.
    assert dot(E4M3, [0.0], [0.0], 1.0 + 2.0**-14) == 1.0
    # 448 * 448 * 32 = 6422528 = 1.53125 * 2^22 fits 13 bits; 1 more is lost (E = 16: the grid is 8).
    assert dot(E4M3, [448.0] * 32, [448.0] * 32, 1.0) == 6422528.0
    assert dot(E4M3, [448.0] * 32, [448.0] * 32, 1.0, mode="ieee") == 6422529.0


def test_f16_result_rounds_to_nearest_even_once() -> None:
    kind = MmaKind(16, 8, 8, "f16", "f16", "f16", "f16")
    # 2048 + 1 is a tie between 2048 and 2050: even is 2048; 2048 + 1 + 2^-10 is above the tie.
    assert dot(kind, [1.0], [1.0], 2048.0) == 2048.0
    assert dot(kind, [1.0, 2.0**-10], [1.0, 1.0], 2048.0) == 2050.0
    # 65504 + 16 is the tie to infinity: round to nearest even gives infinity.
    assert dot(kind, [16.0], [1.0], 65504.0) == np.inf


def test_special_values() -> None:
    assert dot(F16, [np.inf], [1.0], 1.0) == np.inf
    assert dot(F16, [np.inf, np.inf], [1.0, 1.0], -1.0) == np.inf
    assert np.isnan(dot(F16, [np.inf, np.inf], [1.0, -1.0], 0.0))
    assert np.isnan(dot(F16, [np.inf], [0.0], 0.0))
    nan, zero = np.full((16, 16), 0x7E00, np.uint16), np.zeros((16, 8), np.uint16)
    assert (mma(nan, zero, zero.astype(np.uint32), kind=F16) == 0x7FFFFFFF).all()
    # A finite sum of 2^128 or more is infinity; large terms that cancel within a step are harmless.
    bf16 = MmaKind(16, 8, 8, "bf16", "bf16", "f32", "f32")
    assert dot(bf16, [2.0**127, 2.0**127], [1.0, 1.0], 0.0) == np.inf
    assert dot(bf16, [2.0**127, 2.0**127, -(2.0**127)], [1.0, 1.0, 1.0], 0.0) == 2.0**127
    assert dot(bf16, [2.0**100, 2.0**100], [2.0**100, -(2.0**100)], 1.0) == 0.0


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(Unsupported):
        tensorcore_ir(MmaKind(16, 8, 16, "f16", "bf16", "f32", "f32"), "hardware", "sm_89")
    with pytest.raises(Unsupported):
        tensorcore_ir(E4M3, "hardware", "sm_80")
