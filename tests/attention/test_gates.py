"""Gates: right kernels pass in every regime, wrong ones do not."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.errors import ContractError
from weft.attention.gates import flash_gate, lse_gate, tight_gate
from weft.attention.oracle import Block
from weft.attention.reference import attention, attention16
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")

EACH_DTYPE = pytest.mark.parametrize("dtype", regimes.INPUT_DTYPES)
SHORT_DTYPES = pytest.mark.parametrize("dtype", ["f16", "bf16"])


def declared(dtype: str) -> Algorithm:
    """Return the algorithm of a flash kernel of this type."""
    return Algorithm(block_m=64, block_n=64, p_dtype=dtype, out_dtype=dtype)


def other_order(dtype: str, q: Array, k: Array, v: Array) -> Emulated:
    """Return the same algorithm with the sums over d in another order, as a right kernel may have them."""
    order = np.random.default_rng(0).permutation(q.shape[3])
    return emulate(declared(dtype), q[..., order], k[..., order], v)


def all_zeros(q: Array, k: Array, v: Array) -> Array:
    return np.zeros(q.shape)


def one_nan(q: Array, k: Array, v: Array) -> Array:
    o = attention(q, k, v).o
    o[0, 0, -1, -1] = np.nan
    return o


def mean_of_v(q: Array, k: Array, v: Array) -> Array:
    return np.broadcast_to(v.astype(np.float64).mean(axis=2, keepdims=True), q.shape)


def scale_98(q: Array, k: Array, v: Array) -> Array:
    return attention(q, k, v, scale=0.98 / math.sqrt(q.shape[3])).o


def last_tile_dropped(q: Array, k: Array, v: Array) -> Array:
    return attention(q, k[:, :, :-16], v[:, :, :-16]).o


WRONG = pytest.mark.parametrize("wrong", [all_zeros, one_nan, mean_of_v, scale_98, last_tile_dropped])


@EACH_DTYPE
@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_the_tight_gate_passes_another_order_of_summation(regime: str, dtype: str) -> None:
    for name in ("validation_128", "gqa_4_ragged"):
        q, k, v = regimes.make(regime, SHAPES[name], dtype, 0)
        expected = emulate(declared(dtype), q, k, v)
        actual = other_order(dtype, q, k, v)
        result = tight_gate(actual.o, expected.o, v, dtype, allowance=expected.allowance)
        assert result.passed and result.ratio <= 1, str(result)
        assert lse_gate(actual.lse, expected.lse, allowance=expected.allowance).passed


@EACH_DTYPE
@WRONG
def test_the_tight_gate_fails_wrong_kernels(wrong: Callable[[Array, Array, Array], Array], dtype: str) -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["mission"], dtype, 0)
    q, k, v = q[:, :2], k[:, :2], v[:, :2]
    expected = emulate(declared(dtype), q, k, v)
    out = wrong(q, k, v).astype(q.dtype)
    result = tight_gate(out, expected.o, v, dtype, allowance=expected.allowance)
    assert not result.passed and result.ratio > 1, str(result)


@SHORT_DTYPES
@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_the_flash_gate_passes_a_flash_kernel(regime: str, dtype: str) -> None:
    q, k, v = regimes.make(regime, SHAPES["validation_128"], dtype, 0)
    result = flash_gate(emulate(declared(dtype), q, k, v).o, attention(q, k, v).o, attention16(q, k, v).o, dtype)
    assert result.passed and result.ratio <= 1, str(result)


@SHORT_DTYPES
@WRONG
def test_the_flash_gate_fails_wrong_kernels(wrong: Callable[[Array, Array, Array], Array], dtype: str) -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["mission"], dtype, 0)
    q, k, v = q[:, :2], k[:, :2], v[:, :2]
    out = wrong(q, k, v).astype(q.dtype)
    result = flash_gate(out, attention(q, k, v).o, attention16(q, k, v).o, dtype)
    assert not result.passed and result.ratio > 1, str(result)


def test_one_bad_block_is_named() -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["mission"], "f16", 0)
    expected = emulate(declared("f16"), q, k, v)
    out = expected.o.copy()
    out[0, 5, 200, 3] += np.float16(0.02)
    for result in (
        tight_gate(out, expected.o, v, "f16", allowance=expected.allowance),
        flash_gate(out, attention(q, k, v).o, attention16(q, k, v).o, "f16"),
    ):
        assert not result.passed
        assert result.worst == Block(0, 5, 192)
        assert "batch 0 head 5 rows from 192" in str(result)


def test_limits_by_hand() -> None:
    # 1 ulp of f16 at 1 is 2^-10; max|V| = 2 adds 2e-5.
    v = np.full((1, 1, 4, 1), 2.0, np.float16)
    expected = np.ones((1, 1, 1, 1))
    limit = 2.0**-10 + 2e-5
    assert tight_gate(expected + 0.999 * limit, expected, v, "f16").passed
    assert not tight_gate(expected + 1.001 * limit, expected, v, "f16").passed
    result = tight_gate(expected + 2 * limit, expected, v, "f16")
    assert (result.error, result.limit, result.ratio) == pytest.approx((2 * limit, limit, 2))
    # gold 1, ref16 off by 0.01, eps of f16 2^-10: 2·(0.01 + 2^-10) for the maximum, 1.5 times for the mean.
    gold, ref16 = np.ones((1, 1, 1, 2)), np.full((1, 1, 1, 2), 1.01)
    limit = 1.5 * (0.01 + 2.0**-10)
    assert flash_gate(gold + 0.999 * limit, gold, ref16, "f16").passed
    assert flash_gate(gold + 1.001 * limit, gold, ref16, "f16").gate == "flash mean"
    one_off = gold.copy()
    one_off[..., 1] += 2 * (0.01 + 2.0**-10) * 1.001
    assert flash_gate(one_off, gold, ref16, "f16").gate == "flash max"
    # Exactly 0 in both references: only what float32 leaves is allowed. It changes no larger limit.
    zero, least = np.zeros_like(gold), np.full_like(gold, 1e-6)
    assert not flash_gate(zero + 0.999e-6, zero, zero, "f16").passed
    assert flash_gate(zero + 0.999e-6, zero, zero, "f16", least).passed
    assert not flash_gate(zero + 1.001e-6, zero, zero, "f16", least).passed
    assert not flash_gate(gold + 1.001 * limit, gold, ref16, "f16", least).passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_gate_passes_nan_even_against_itself(value: float) -> None:
    bad, one = np.full((1, 1, 1, 1), value), np.ones((1, 1, 1, 1))
    assert not tight_gate(bad, one, one, "f32").passed
    assert not tight_gate(one, bad, one, "f32").passed
    assert not flash_gate(bad, one, one, "f16").passed
    assert not lse_gate(bad[..., 0], one[..., 0]).passed
    assert not tight_gate(np.full((1, 1, 1, 1), np.nan), np.full((1, 1, 1, 1), np.nan), one, "f32").passed
    with pytest.raises(ContractError, match="not finite"):
        flash_gate(bad, one, bad, "f16")


def test_lse_of_masked_rows_and_of_wrong_units() -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["few_keys"], "f32", 0)
    expected = emulate(declared("f32"), q, k, v, causal="bottom_right")
    gold = attention(q, k, v, causal="bottom_right").lse
    assert lse_gate(gold, expected.lse, allowance=expected.allowance).passed
    assert not lse_gate(gold / math.log(2), expected.lse, allowance=expected.allowance).passed
    assert not lse_gate(np.where(np.isneginf(gold), 0, gold), expected.lse, allowance=expected.allowance).passed
    assert not lse_gate(np.where(np.isneginf(gold), np.nan, gold), expected.lse).passed


def test_misuse() -> None:
    one = np.ones((1, 1, 2, 2))
    with pytest.raises(ContractError, match="cannot judge"):
        tight_gate(one, one[..., :1], one, "f32")
    with pytest.raises(ContractError, match="does not belong"):
        tight_gate(one, one, np.ones((2, 1, 2, 2)), "f32")
    with pytest.raises(ContractError, match="f16 and bf16"):
        flash_gate(one, one, one, "f32")
