"""Quantisers: round trips within their bounds, exact zeros, and a bug that a looser gate once passed."""

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array
from weft.attention.errors import ContractError
from weft.attention.quantise import QUANTISERS, E4M3PerHead, Quantiser, SimFp8
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")

BOTH = pytest.mark.parametrize("quantiser", QUANTISERS.values(), ids=str)


def heads(*values: object) -> Array:
    """One batch, one row per head."""
    return np.array(values, np.float32)[None, :, None, :]


def test_sim_fp8_by_hand() -> None:
    # absmax 127: one step per unit, so codes are x + 128.
    x = heads([-127, -1, 0, 0.4, 0.6, 1, 2.4, 127])
    codes, scale = SimFp8().encode(x)
    assert scale.item() == np.float32(127 / 448)
    assert codes.ravel().tolist() == [1, 127, 128, 128, 129, 129, 130, 255]
    assert SimFp8().decode(codes, scale).ravel() == pytest.approx([-127, -1, 0, 0, 1, 1, 2, 127], rel=1e-6)


def test_e4m3_by_hand() -> None:
    # absmax 448: scale 1. 1.0 is 0x38, 448 is 0x7E; 17 is between 16 and 18 and rounds to the even one.
    x = heads([448, 1, -1, 17, 0, 2.0**-9])
    codes, scale = E4M3PerHead().encode(x)
    assert scale.item() == 1.0
    assert codes.ravel().tolist() == [0x7E, 0x38, 0xB8, 0x58, 0x00, 0x01]
    assert E4M3PerHead().decode(codes, scale).ravel().tolist() == [448, 1, -1, 16, 0, 2.0**-9]


@BOTH
@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_round_trip_is_within_the_bound(quantiser: Quantiser, regime: str) -> None:
    for dtype in ("f32", "f16"):
        for x in regimes.make(regime, SHAPES["gqa_4_ragged"], dtype, 0):
            codes, scale = quantiser.encode(x)
            assert codes.dtype == np.uint8 and codes.shape == x.shape
            assert scale.dtype == np.float32 and scale.shape == x.shape[:2]
            error = np.abs(quantiser.decode(codes, scale).astype(np.float64) - x.astype(np.float64))
            assert (error <= quantiser.bound(x, scale)).all()


def test_the_bound_of_sim_fp8_is_half_a_step() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 50, 64))
    codes, scale = SimFp8().encode(x)
    half = np.abs(x).max(axis=(2, 3)) / 127 / 2
    assert SimFp8().bound(x, scale)[:, :, 0, 0] == pytest.approx(half, rel=1e-4)
    error = np.abs(SimFp8().decode(codes, scale) - x).max(axis=(2, 3))
    assert (error > 0.99 * half).all()  # and it is reached


@BOTH
def test_zero_head_among_others(quantiser: Quantiser) -> None:
    x = heads([0, 0, 0], [1, -2, 3], [1e-7, -1e-7, 0])
    codes, scale = quantiser.encode(x)
    assert scale[0].tolist() == [1.0, np.float32(3 / 448), 1.0]
    zero = {"sim_fp8": 128, "e4m3": 0}[quantiser.name]
    assert (codes[0, [0, 2]] == zero).all()
    assert (quantiser.decode(codes, scale)[0, [0, 2]] == 0).all()


@BOTH
@pytest.mark.parametrize("value", [3.7, -0.02, 2e-6, 6e4, 1e38])
def test_constant_head_comes_back(quantiser: Quantiser, value: float) -> None:
    x = np.full((1, 2, 5, 8), value, np.float32)
    assert quantiser.decode(*quantiser.encode(x)) == pytest.approx(x, rel=1e-6)


@BOTH
def test_each_head_has_its_own_scale(quantiser: Quantiser) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 40, 64))
    x[0, 1] *= 1000
    small = quantiser.decode(*quantiser.encode(x))[0, 0]
    alone = quantiser.decode(*quantiser.encode(x[:, :1]))[0, 0]
    assert np.array_equal(small, alone)


@BOTH
def test_nan_and_infinity_are_refused(quantiser: Quantiser) -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(ContractError, match="NaN or infinity"):
            quantiser.encode(heads([1, value]))


@pytest.mark.parametrize("regime", ["unit_normal", "v_offset"])
def test_bias_shows_the_half_step_encoder(regime: str) -> None:
    sim = SimFp8()
    _, _, v = regimes.make(regime, SHAPES["validation_128"], "f32", 0)
    codes, scale = sim.encode(v)
    assert np.abs(sim.bias(v, codes, scale)).max() < 0.02
    # The encoder of an earlier project puts zero between two codes.
    share = v / (448 * scale[..., None, None])
    wrong = np.clip(np.rint((share + 1) * 127.5), 0, 255).astype(np.uint8)
    gain = 0.5 * share.mean(axis=(2, 3))  # it also stretches by 127.5/127, half a step at the largest magnitude
    assert sim.bias(v, wrong, scale) == pytest.approx(gain - 0.5, abs=0.02)
    error = np.abs(sim.decode(wrong, scale) - v)
    # Errors spread evenly over one step, shifted by the bias: that share of them leaves the half step.
    assert (error > sim.bound(v, scale)).mean() == pytest.approx(0.5 - gain.mean(), abs=0.03)
