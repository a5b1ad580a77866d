"""Error reports and the ladder."""

import math

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm
from weft.attention.error_report import block_max
from weft.attention.errors import ContractError
from weft.attention.oracle import Block, Oracle, compare
from weft.attention.quantise import QUANTISERS
from weft.attention.reference import attention
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")


def rows(*values: float) -> Array:
    """One head, one channel."""
    return np.array(values).reshape(1, 1, -1, 1)


def test_figures_by_hand() -> None:
    report = compare(rows(1, 2, -1, 4), rows(1, 2, 1, 3))
    assert (report.max, report.mean, report.bias) == (2, 0.75, -0.25)
    assert report.rmse == pytest.approx(math.sqrt(5 / 4))
    assert report.rel_l2 == pytest.approx(math.sqrt(5 / 15))
    assert report.cosine == pytest.approx((1 + 4 - 1 + 12) / math.sqrt(22 * 15))
    assert (report.bad_share, report.sign_flips, report.worst) == (0.5, 1, (0, 0, 2, 0))


def test_equal_arrays_and_equal_infinities() -> None:
    for values in (rows(1, -2, 3), rows(0, 0), rows(-np.inf, 1)):
        report = compare(values, values)
        assert (report.max, report.mean, report.bias, report.rel_l2, report.rmse) == (0, 0, 0, 0, 0)
        assert report.cosine == pytest.approx(1)
        assert (report.bad_share, report.sign_flips) == (0, 0)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(rows(1, np.nan), rows(1, 2)), (rows(1, np.nan), rows(1, np.nan)), (rows(1, -np.inf), rows(1, np.inf))],
)
def test_nan_is_an_infinite_error_and_passes_no_comparison(actual: Array, expected: Array) -> None:
    report = compare(actual, expected)
    assert report.max == report.mean == report.rmse == report.rel_l2 == math.inf
    assert not abs(report.bias) <= 1e9 and not report.cosine >= -1
    assert (report.worst, report.bad_share) == ((0, 0, 1, 0), 0.5)


def test_anything_against_zero() -> None:
    report = compare(rows(0, 1e-9), rows(0, 0))
    assert (report.rel_l2, report.cosine, report.bad_share) == (math.inf, 0, 0.5)


def test_maxima_per_block_of_64_rows() -> None:
    expected = np.zeros((1, 2, 130, 4))
    actual = expected.copy()
    actual[0, 0, 63, 1], actual[0, 1, 64, 2], actual[0, 1, 129, 3] = 1, -2, 3
    assert block_max(np.abs(actual)).tolist() == [[[1, 0, 0], [0, 2, 3]]]
    assert compare(actual, expected).worst_block == Block(0, 1, 128)


def test_figures_survive_values_near_the_limit() -> None:
    report = compare(rows(3e200, 1e200), rows(3e200, 2e200))
    assert report.rmse == pytest.approx(1e200 / math.sqrt(2))
    assert report.rel_l2 == pytest.approx(1 / math.sqrt(13))


def test_different_shapes_cannot_be_compared() -> None:
    with pytest.raises(ContractError, match="cannot compare"):
        compare(np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 2, 3)))


@pytest.mark.parametrize("quantiser", [None, *QUANTISERS])
def test_the_split_adds_up(quantiser: str | None) -> None:
    rng = np.random.default_rng(0)
    shape = SHAPES["gqa_4_ragged"]
    q, k, v = rng.standard_normal(shape.q), rng.standard_normal(shape.kv), rng.standard_normal(shape.kv)
    oracle = Oracle(
        algorithm=Algorithm(block_m=32, block_n=32, p_dtype="bf16", out_dtype="bf16"),
        dtype="bf16",
        quantiser=QUANTISERS[quantiser] if quantiser else None,
        causal="bottom_right",
    )
    rungs = oracle.rungs(q, k, v)
    assert np.array_equal(rungs.exact.o, attention(q, k, v, causal="bottom_right").o)
    bug = 0.125
    ladder = oracle.ladder(rungs, rungs.emulated.o.astype(np.float64) + bug)
    assert list(ladder.parts()) == ["err_dtype", "err_quant", "err_algorithm", "err_kernel"]
    assert sum(part.bias for part in ladder.parts().values()) == pytest.approx(ladder.total.bias, abs=1e-12)
    assert ladder.total.max <= sum(part.max for part in ladder.parts().values())
    assert ladder.err_kernel.bias == pytest.approx(bug) and ladder.err_kernel.max == pytest.approx(bug)
    assert 1e-4 < ladder.err_dtype.max < 0.05
    assert 1e-4 < ladder.err_algorithm.max < 0.05
    assert (ladder.err_quant.max > 1e-3) if quantiser else (ladder.err_quant.max == 0)


def test_inputs_already_in_their_dtype_lose_nothing_to_it() -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["small"], "f16", 0)
    oracle = Oracle(algorithm=Algorithm(block_m=16, block_n=16), dtype="f16")
    ladder = oracle.ladder(rungs := oracle.rungs(q, k, v), rungs.emulated.o)
    assert ladder.err_dtype.max == ladder.err_quant.max == ladder.err_kernel.max == 0
    assert ladder.total.max == ladder.err_algorithm.max < 1e-5
