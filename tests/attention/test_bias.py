"""The bias gate rejects truncated outputs by their mean error, and passes right outputs of any design."""

from collections.abc import Callable

import numpy as np
import pytest

from weft.attention.bias import FEWEST_ELEMENTS, bias_gate
from weft.attention.dtypes import Array, numpy_dtype, rounded, ulp
from weft.tasks.mutants.small import cut, floored

SHORT_DTYPES = pytest.mark.parametrize("dtype", ["f16", "bf16"])
SHAPE = (2, 2, 77, 64)
KEYS = np.full(77, 77)

Round = Callable[[Array, str], Array]


def away_at_ties(values: Array, dtype: str) -> Array:
    """Round to the nearest, ties away from zero."""
    down = cut(values, dtype)
    step = ulp(values, dtype)
    return np.where(np.abs(values - down) >= step / 2, down + np.sign(values) * step, down)


def drawn(seed: int = 0, offset: float = 0.0) -> Array:
    return np.random.default_rng(seed).standard_normal(SHAPE) + offset


@SHORT_DTYPES
@pytest.mark.parametrize("offset", [0.0, 4.0])
def test_half_an_ulp_is_detected(dtype: str, offset: float) -> None:
    """Errors of truncated values are uniform between 0 and -1 ulp: half an ulp in the mean, and none beyond one."""
    exact = drawn(offset=offset)
    rounds: tuple[Round, ...] = (cut, floored)
    for wrong in rounds:
        out = wrong(exact, dtype)
        assert np.array_equal(out, out.astype(numpy_dtype(dtype)).astype(np.float64)), "values of the type"
        assert (np.abs(out - exact) < ulp(exact, dtype)).all(), "no limit of one ulp sees it"
        result = bias_gate(out, (exact,), dtype, keys=KEYS)
        assert result is not None and not result.passed
        assert result.gate == "bias" and result.error == pytest.approx(0.5, abs=0.02) and result.limit < 0.05


@SHORT_DTYPES
@pytest.mark.parametrize("right", [rounded, away_at_ties])
def test_rounding_to_the_nearest_passes(dtype: str, right: Round) -> None:
    for seed in range(5):
        for offset in (0.0, 4.0):
            exact = drawn(seed, offset)
            result = bias_gate(right(exact, dtype), (exact,), dtype, keys=KEYS)
            assert result is not None and result.passed and result.ratio < 0.8, str(result)


@SHORT_DTYPES
def test_noise_that_a_row_or_a_column_shares_passes(dtype: str) -> None:
    """A rounded weight moves an entire row, a rounded V an entire column: far fewer errors than elements."""
    rng = np.random.default_rng(1)
    exact = drawn(offset=4.0)
    for shared in ((2, 2, 77, 1), (2, 1, 1, 64)):
        noisy = exact + rng.uniform(-1, 1, shared) * ulp(exact, dtype)
        result = bias_gate(rounded(noisy, dtype), (exact,), dtype, keys=KEYS)
        assert result is not None and result.passed, str(result)
        alone = 7 * 0.65 / np.sqrt(exact.size)  # were they all independent
        assert result.limit > 2 * alone
        result = bias_gate(cut(noisy, dtype), (exact,), dtype, keys=KEYS)
        assert result is not None and not result.passed, str(result)


def test_values_that_are_all_just_below_a_value_of_the_type() -> None:
    """A row with nearly all weight on one key: rounding moves all elements up, which is right; noise is right too."""
    near = rounded(drawn(), "f16")
    exact = near - 0.05 * np.sign(near) * ulp(near, "f16")
    noisy = exact + np.random.default_rng(2).uniform(-3, 3, SHAPE) * ulp(near, "f16")
    for out in (near, rounded(noisy, "f16")):
        result = bias_gate(out, (exact,), "f16", keys=KEYS)
        assert result is not None and result.passed, str(result)
    result = bias_gate(cut(exact, "f16"), (exact,), "f16", keys=KEYS)
    assert result is not None and not result.passed


def test_a_bias_in_one_head_of_four_is_enough() -> None:
    exact = drawn()
    out = rounded(exact, "f16")
    out[1, 0] = cut(exact, "f16")[1, 0]
    result = bias_gate(out, (exact,), "f16", keys=KEYS)
    assert result is not None and not result.passed and (result.worst.batch, result.worst.head) == (1, 0)


def test_float32_may_round_once_per_key_to_the_same_side() -> None:
    exact = drawn(offset=4.0)
    for relative, passes in ((0.4, True), (3.0, False)):
        out = (exact * (1 - relative * 77 * 2.0**-25)).astype(np.float32)
        result = bias_gate(out, (exact,), "f32", keys=KEYS)
        assert result is not None and result.passed is passes, str(result)


def test_values_that_are_not_rounded_are_ignored() -> None:
    exact = rounded(drawn(), "f16")
    assert bias_gate(exact, (exact,), "f16", keys=KEYS) is None, "exactly representable"
    assert bias_gate(np.zeros(SHAPE), (np.zeros(SHAPE),), "f16", keys=KEYS) is None
    tiny = drawn() * 2.0**-20
    assert bias_gate(tiny, (tiny,), "f16", keys=KEYS) is None, "denormal in f16"
    few = drawn()[:1, :1, :, : FEWEST_ELEMENTS // 77]
    assert bias_gate(few, (few,), "f16", keys=KEYS) is None
    one_row = drawn()[:, :, :1]
    assert bias_gate(np.repeat(one_row, 20, 3), (np.repeat(one_row, 20, 3),), "f16", keys=KEYS[:1]) is None


def test_nan_is_no_small_error() -> None:
    exact = drawn()
    out = rounded(exact, "f16")
    out[0, 0] = np.nan
    result = bias_gate(out, (exact,), "f16", keys=KEYS)
    assert result is not None and not result.passed
