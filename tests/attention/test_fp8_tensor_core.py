"""The rules of Ada's and Hopper's FP8 tensor cores: by hand, and bit for bit as on the virtual GPU."""

import ml_dtypes
import numpy as np
import pytest

from weft.attention.dtypes import Array
from weft.attention.errors import ContractError
from weft.attention.fp8_tensor_core import fp8_matmul
from weft.vm.mma_kind import WGMMA, MmaKind
from weft.vm.reference.tensorcore import mma

KIND = MmaKind(16, 8, 32, "e4m3", "e4m3", "f32", "f32")


def values(codes: Array) -> Array:
    return codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)


def dot(a: list[float], b: list[float], c: float = 0.0, *, step: int = 16) -> float:
    given = np.full((1, 1, 1), c, np.float32)
    left, right = np.array(a, np.float32)[None, None], np.array(b, np.float32)[None, :, None]
    return float(fp8_matmul(left, right, given, step=step)[0, 0, 0])


@pytest.mark.parametrize("spread", ["every code", "normal"])
@pytest.mark.parametrize("start", ["zero", "any"])
@pytest.mark.parametrize(("arch", "step"), [("sm_89", 16), (WGMMA, 32)])
def test_the_same_bits_as_the_virtual_gpu(spread: str, start: str, arch: str, step: int) -> None:
    """Two instructions in a row, with zeros among the codes and accumulators from 1e-4 to 1e4 times the products."""
    rng = np.random.default_rng(len(spread) + len(start))
    operands = []
    for size in ((40, 16, 64), (40, 64, 8)):
        codes = rng.integers(0, 256, size).astype(np.uint8)
        if spread == "normal":
            codes = (rng.standard_normal(size) * 30).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
        codes[((codes & 0x7F) == 0x7F) | (rng.random(size) < 0.1)] = 0
        operands.append(codes)
    a, b = operands
    c = rng.standard_normal((40, 16, 8)) * 10.0 ** rng.integers(-4, 5, (40, 16, 8))
    c = np.zeros_like(c, np.float32) if start == "zero" else c.astype(np.float32)
    expected = c.view(np.uint32)
    for k in (slice(0, 32), slice(32, 64)):
        expected = mma(a[:, :, k], b[:, k], expected, kind=KIND, arch=arch)
    assert np.array_equal(fp8_matmul(values(a), values(b), c, step=step).view(np.uint32), expected)


def test_bits_13_places_below_are_lost() -> None:
    assert dot([1, 2.0**-7], [1, 2.0**-6]) == 1 + 2.0**-13
    assert dot([1, 2.0**-7], [1, 2.0**-7]) == 1
    assert dot([1, -(2.0**-7)], [1, 2.0**-7]) == 1  # toward zero, not down
    assert dot([1], [1], 2.0**-14) == 1


def test_a_significand_up_to_4_is_not_normalised_first() -> None:
    # 1.5 · 1.5 = 2.25 has exponent 0, so a unit of the sum is 2^-13; the result, 2.25 and more, keeps only 2^-12.
    assert dot([1.5, 1.5 * 2.0**-6], [1.5, 2.0**-6]) == 2.25 + 2.0**-12
    assert dot([1.5, 2.0**-6, 2.0**-6], [1.5, 2.0**-7, 2.0**-7]) == 2.25 + 2.0**-12  # two units of 2^-13


def test_16_products_are_one_step() -> None:
    """Small products count together, but not one after the other."""
    small = [2.0**-6] * 15
    assert dot([1, *small], [1, *[2.0**-7] * 15]) == 1 + 15 * 2.0**-13  # each is just a unit
    assert dot([1, *small], [1, *[2.0**-8] * 15]) == 1
    later = dot([1, *[0.0] * 15, *small], [1, *[0.0] * 15, *[2.0**-8] * 15])
    assert later == 1


def test_32_products_are_one_step_on_hopper() -> None:
    """Ada sums four small products before it meets the large one; Hopper aligns each of them to it."""
    a, b = [2.0**-7] * 4 + [0.0] * 12 + [1.0], [2.0**-8] * 4 + [0.0] * 12 + [1.0]
    assert dot(a, b) == 1 + 2.0**-13
    assert dot(a, b, step=32) == 1


def test_a_long_sum_stops_growing() -> None:
    """From 2^14 products on, one more is less than a unit."""
    ones = np.ones((1, 1, 3 * 2**14), np.float32)
    assert fp8_matmul(ones, ones.swapaxes(1, 2))[0, 0, 0] == 2.0**14


def test_shapes_must_fit() -> None:
    with pytest.raises(ContractError, match="cannot multiply"):
        fp8_matmul(np.ones((1, 2, 3)), np.ones((1, 4, 2)))
