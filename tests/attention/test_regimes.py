"""Inputs: finite, repeatable, and each with the property it is named for."""

import zlib

import numpy as np
import pytest

from weft.attention.dtypes import largest, numpy_dtype, smallest_normal
from weft.attention.errors import ContractError
from weft.attention.reference import attention
from weft.attention.regimes import INPUT_DTYPES, REGIMES, fits_f16, make
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")

EACH_DTYPE = pytest.mark.parametrize("dtype", INPUT_DTYPES)


@EACH_DTYPE
@pytest.mark.parametrize("regime", REGIMES)
def test_finite_typed_and_repeatable(regime: str, dtype: str) -> None:
    for name in ("split_4", "one_token", "gqa_4_ragged", "d80"):
        shape = SHAPES[name]
        first, second = make(regime, shape, dtype, 7), make(regime, shape, dtype, 7)
        assert [x.shape for x in first] == [shape.q, shape.kv, shape.kv]
        for x, again in zip(first, second, strict=True):
            assert x.dtype == numpy_dtype(dtype) and x.flags.c_contiguous
            assert np.isfinite(x.astype(np.float64)).all()
            assert x.tobytes() == again.tobytes()


@EACH_DTYPE
@pytest.mark.parametrize("regime", REGIMES)
def test_which_values_fit_f16(regime: str, dtype: str) -> None:
    peak = max(np.abs(x.astype(np.float64)).max() for x in make(regime, SHAPES["validation_128"], dtype, 3))
    assert fits_f16(regime, dtype) == (peak <= 65504)


@pytest.mark.parametrize("regime", sorted(set(REGIMES) - {"zeros"}))
def test_seeds_differ(regime: str) -> None:
    digests = {zlib.crc32(make(regime, SHAPES["small"], "f16", seed)[2].tobytes()) for seed in range(4)}
    assert len(digests) == 4


def test_every_regime_has_a_description() -> None:
    assert all(regime.__doc__ for regime in REGIMES.values())


def logits(
    regime: str, dtype: str = "f32", name: str = "split_512"
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """q·kᵀ/sqrt(d) of the first head."""
    q, k, _ = (x[0, 0].astype(np.float64) for x in make(regime, SHAPES[name], dtype, 0))
    return np.asarray(q @ k.T / q.shape[1] ** 0.5)


@pytest.mark.parametrize(
    ("regime", "spread"), [("unit_normal", 1), ("logits_8", 8), ("logits_16", 16), ("logits_32", 32)]
)
def test_spread_of_logits(regime: str, spread: float) -> None:
    assert logits(regime).std() == pytest.approx(spread, rel=0.05)


def test_only_32_overflows_exp_in_most_rows() -> None:
    limit = np.log(np.finfo(np.float32).max)
    assert (logits("logits_32").max(axis=1) > limit).mean() > 0.5
    assert (logits("logits_8").max(axis=1) > limit).mean() == 0


@EACH_DTYPE
def test_one_hot_rows_return_a_row_of_v(dtype: str) -> None:
    q, k, v = make("one_hot", SHAPES["validation_128"], dtype, 0)
    o = attention(q, k, v).o
    nearest = np.abs(o[:, :, :, None] - v.astype(np.float64)[:, :, None]).max(axis=-1).min(axis=-1)
    assert nearest.max() < 1e-6


def test_offset_zeros_and_equal() -> None:
    assert make("v_offset", SHAPES["mission"], "f32", 0)[2].mean() == pytest.approx(4, abs=0.02)
    assert not any(x.any() for x in make("zeros", SHAPES["small"], "f16", 0))
    q, k, v = make("all_equal", SHAPES["ragged"], "bf16", 0)
    assert attention(q, k, v).o == pytest.approx(float(v.flat[0]))


@EACH_DTYPE
def test_offsets_put_every_logit_far_below_zero(dtype: str) -> None:
    """exp(-88) is below the smallest normal float: with a running maximum that starts at 0 a row becomes 0."""
    found = logits("offsets", dtype)
    assert found.max() < np.log(np.finfo(np.float32).tiny) and found.mean() == pytest.approx(-128, rel=0.05)
    _, k, v = (x.astype(np.float64) for x in make("offsets", SHAPES["mission"], dtype, 0))
    assert np.abs(k.mean(axis=2)).mean() == pytest.approx(8, rel=0.02)
    assert np.abs(k - k.mean(axis=2, keepdims=True)).max() < 1
    assert v.mean() == pytest.approx(4, abs=0.02)


def test_outlier_channels() -> None:
    _, k, v = make("outlier_channels", SHAPES["mission"], "f32", 0)
    for x in (k, v):
        sizes = np.sort(x.std(axis=(0, 1, 2)))
        assert sizes[-4:] == pytest.approx(50, rel=0.1) and sizes[:-4] == pytest.approx(1, rel=0.1)


@EACH_DTYPE
def test_large_magnitude_fits_a_float32_accumulator(dtype: str) -> None:
    shape = SHAPES["split_512"]
    _, k, v = (x.astype(np.float64) for x in make("large_magnitude", shape, dtype, 0))
    assert np.abs(k).max() > largest(dtype) / 2 if dtype == "f16" else np.abs(k).max() > 1e33
    assert np.abs(v).max() > largest(dtype) / (4 if dtype == "f16" else 16 * shape.skv)
    assert np.abs(v).max() * shape.skv < largest("f32")
    assert logits("large_magnitude", dtype).std() == pytest.approx(1, rel=0.05)


@EACH_DTYPE
def test_denormals_are_mostly_below_the_smallest_normal(dtype: str) -> None:
    for x in make("denormals", SHAPES["validation_128"], dtype, 0):
        below = np.abs(x.astype(np.float64)) < smallest_normal(dtype)
        assert 0.5 < below.mean() < 0.7
        assert (x != 0).all()


@EACH_DTYPE
def test_zero_rows(dtype: str) -> None:
    q, k, v = make("zero_rows", SHAPES["ragged"], dtype, 0)
    for x, share in ((q, 26 / 77), (k, 16 / 77)):
        assert (x == 0).all(axis=3).mean() == pytest.approx(share)
        zeros = x[(x == 0).all(axis=3)].astype(np.float64)
        assert np.signbit(zeros).any() and not np.signbit(zeros).all(), "both zeros"
    empty = (v == 0).all(axis=(2, 3))
    assert empty[-1, -1] and empty.sum() == 1
    assert make("zero_rows", SHAPES["small"], dtype, 0)[2].all(), "the only head has a V"


@EACH_DTYPE
def test_small_values_leave_a_small_output_that_is_mostly_normal(dtype: str) -> None:
    o = np.abs(attention(*make("small_values", SHAPES["ragged"], dtype, 0)).o)
    assert 1e-4 < (o < 1e-6).mean() < 0.1 and (o > smallest_normal("f16")).mean() > 0.7


@EACH_DTYPE
@pytest.mark.parametrize("name", ["ragged", "gqa_4_ragged", "split_512"])
def test_the_long_tail_is_all_of_the_output(dtype: str, name: str) -> None:
    """Its weights are below 2e-4 of the largest, on both sides of e^-12, and large enough for a P in f16."""
    found = logits("long_tail", dtype, name)
    below = found[:, :1] - found[:, 1:]
    assert 5e-5 < np.exp(-below).max() < 1e-3 and (np.exp(-below) < 2e-4).mean() > 0.9
    assert (below > 12).mean() > 0.5
    assert np.median(below) < 17, "2^-25, half of f16's smallest step"
    _, _, v = make("long_tail", SHAPES[name], dtype, 0)
    assert not v[:, :, 0].any() and v[:, :, 1:].astype(np.float64).mean() == pytest.approx(8, abs=0.1)


@EACH_DTYPE
@pytest.mark.parametrize("name", ["mission", "gqa_4"])
def test_the_running_maximum_always_or_never_rises(dtype: str, name: str) -> None:
    up, down = logits("sorted_keys", dtype, name), logits("reversed_keys", dtype, name)
    tile_max = up.reshape(len(up), -1, 16).max(axis=2)
    assert (np.diff(tile_max, axis=1) > 0).all()
    assert (down[:, :16].max(axis=1) == down.max(axis=1)).all()


def test_unknown_names() -> None:
    with pytest.raises(ContractError, match="unknown regime 'unit'"):
        make("unit", SHAPES["small"], "f32", 0)
    with pytest.raises(ContractError, match="not 'e4m3'"):
        make("zeros", SHAPES["small"], "e4m3", 0)
