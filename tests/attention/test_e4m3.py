"""E4M3 per block, per channel and after smoothing: by hand, within bounds, and what smoothing does to attention."""

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array, rounded
from weft.attention.e4m3 import (
    MEAN_CHUNK,
    E4M3PerBlock,
    E4M3PerChannel,
    SmoothedE4M3PerBlock,
    e4m3_codes,
    e4m3_values,
    key_mean,
    lse_shift,
)
from weft.attention.errors import ContractError
from weft.attention.quantise import E4M3PerHead, Quantiser
from weft.attention.reference import attention
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")

QUANTISERS: list[Quantiser] = [E4M3PerBlock(64), E4M3PerBlock(32), E4M3PerChannel()]
EACH = pytest.mark.parametrize("quantiser", QUANTISERS, ids=str)


def rows(*values: object) -> Array:
    """One head."""
    return np.array(values, np.float32)[None, None]


def test_blocks_by_hand() -> None:
    # Blocks of two rows, the last of one: absmax 448, 896 and 7. 1.0 is 0x38, 448 is 0x7E.
    x = rows([448, 1], [-1, 0], [896, -2], [17, 0.5], [7, -3.5])
    codes, scale = E4M3PerBlock(2).encode(x)
    assert scale[0, 0].tolist() == [1, 2, 7 / 448]
    # In units of 2: 448, -1, 8.5 between 8 and 9 (a code apart: stays even, 8), 0.25; in units of 1/64: 448, -224.
    assert e4m3_values(codes)[0, 0].tolist() == [[448, 1], [-1, 0], [448, -1], [8, 0.25], [448, -224]]
    assert codes[0, 0, 0].tolist() == [0x7E, 0x38]
    decoded = E4M3PerBlock(2).decode(codes, scale)
    assert decoded[0, 0].tolist() == [[448, 1], [-1, 0], [896, -2], [16, 0.5], [7, -3.5]]


def test_channels_by_hand() -> None:
    x = rows([448, 0.001, 0], [-224, -0.0005, 0])
    codes, scale = E4M3PerChannel().encode(x)
    assert scale[0, 0].tolist() == [1, np.float32(0.001) / np.float32(448), 1]
    assert codes[0, 0].tolist() == [[0x7E, 0x7E, 0], [0xF6, 0xF6, 0]]


@EACH
@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_round_trip_is_within_the_bound(quantiser: Quantiser, regime: str) -> None:
    for dtype in ("f32", "f16", "bf16"):
        for x in regimes.make(regime, SHAPES["gqa_4_ragged"], dtype, 0):
            codes, scale = quantiser.encode(x)
            assert codes.dtype == np.uint8 and codes.shape == x.shape and scale.dtype == np.float32
            error = np.abs(quantiser.decode(codes, scale).astype(np.float64) - x.astype(np.float64))
            assert (error <= quantiser.bound(x, scale)).all()


@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_smoothed_round_trip_is_within_the_bound(regime: str) -> None:
    smoothed = SmoothedE4M3PerBlock(64)
    for dtype in ("f32", "f16", "bf16"):
        _, k, _ = regimes.make(regime, SHAPES["gqa_4_ragged"], dtype, 0)
        coded = smoothed.encode(k)
        error = np.abs(smoothed.decode(*coded).astype(np.float64) - k.astype(np.float64))
        assert (error <= smoothed.bound(k, coded.scale, coded.mean)).all()


@EACH
def test_the_bound_is_nearly_reached(quantiser: Quantiser) -> None:
    """Half a step above a power of two is 1/17 of the value; the bound is 1/16."""
    x = np.random.default_rng(0).standard_normal((1, 2, 128, 64)).astype(np.float32)
    codes, scale = quantiser.encode(x)
    error = np.abs(quantiser.decode(codes, scale).astype(np.float64) - x)
    assert (error / quantiser.bound(x, scale)).max() == pytest.approx(16 / 17, rel=0.005)


@EACH
def test_zero_blocks_and_channels(quantiser: Quantiser) -> None:
    """Zeros, and values so small that their step would not be a normal number, decode to zero; others do not change."""
    x = np.zeros((1, 3, 70, 8), np.float32)
    x[0, 1] = 2.0**-120
    x[0, 2, 40, 3] = 5
    codes, scale = quantiser.encode(x)
    decoded = quantiser.decode(codes, scale)
    assert not decoded[0, :2].any() and np.isfinite(scale).all() and (scale[0, :2] == 1).all()
    assert decoded[0, 2, 40, 3] == pytest.approx(5, rel=1e-6) and np.count_nonzero(decoded) == 1
    assert (np.abs(decoded - x) <= quantiser.bound(x, scale)).all()


def test_denormal_codes() -> None:
    """Below 2^-6 of a unit steps are 2^-9; half of one rounds to the even code, zero."""
    x = rows([448, 2.0**-9, 2.0**-10, 3 * 2.0**-10, -(2.0**-11)])
    codes, _ = E4M3PerBlock(1).encode(x)
    assert (codes[0, 0, 0] & 0x7F).tolist() == [0x7E, 1, 0, 2, 0]


def test_codes_saturate() -> None:
    codes = e4m3_codes(np.array([448.5, 1e30, -470, 463.9], np.float32), np.float32(1))
    assert e4m3_values(codes).tolist() == [448, 448, -448, 448]


@EACH
@pytest.mark.parametrize("value", [3.7, -0.02, 2e-6, 6e4, 1e-30, 1e38])
def test_constants_come_back(quantiser: Quantiser, value: float) -> None:
    x = np.full((1, 2, 5, 8), value, np.float32)
    assert quantiser.decode(*quantiser.encode(x)) == pytest.approx(x, rel=1e-6)


def test_a_block_is_finer_than_a_head() -> None:
    """One block has large values: the others keep their own step."""
    x = np.random.default_rng(0).standard_normal((1, 1, 256, 64))
    x[:, :, :64] *= 10000
    quiet = slice(64, None)

    def error(quantiser: Quantiser) -> float:
        return float(np.abs(quantiser.decode(*quantiser.encode(x)) - x)[:, :, quiet].mean())

    assert error(E4M3PerBlock(64)) < 0.6 * error(E4M3PerHead())


def test_the_mean_by_hand() -> None:
    k = rows([1, 2], [3, 2], [5, 2.5])
    assert key_mean(k)[0, 0].tolist() == [3, 2.171875]  # 6.5 / 3 in bf16: 139 / 64


@pytest.mark.parametrize("keys", [1, 20, 127, 128, 129, 300])
def test_the_mean_adds_key_after_key_in_each_chunk(keys: int) -> None:
    k = (1000 * np.random.default_rng(keys).standard_normal((2, 3, keys, 5))).astype(np.float32)
    k[:, :, :, 0] = -0.0
    whole = np.zeros((2, 3, 5), np.float32)
    for first in range(0, keys, MEAN_CHUNK):
        total = np.zeros((2, 3, 5), np.float32)
        for key in range(first, min(first + MEAN_CHUNK, keys)):
            total = total + k[:, :, key]
        whole = whole + total
    assert key_mean(k).tobytes() == rounded(whole / np.float32(keys), "bf16").tobytes()


def test_smoothing_does_not_change_attention_and_shifts_lse_as_declared() -> None:
    shape = SHAPES["gqa_4_ragged"]
    rng = np.random.default_rng(0)
    q, v = rng.standard_normal(shape.q), rng.standard_normal(shape.kv)
    k = rng.standard_normal(shape.kv) + 10 * rng.standard_normal((shape.b, shape.hkv, 1, shape.d))
    mean = key_mean(k)
    whole, centred = attention(q, k, v), attention(q, k - mean[:, :, None], v)
    np.testing.assert_allclose(centred.o, whole.o, atol=1e-10)
    np.testing.assert_allclose(centred.lse + lse_shift(q, mean, 1 / np.sqrt(shape.d)), whole.lse, atol=1e-10)


def test_smoothing_helps_keys_with_an_offset() -> None:
    rng = np.random.default_rng(0)
    k = rng.standard_normal((1, 2, 100, 64)) + 30 * rng.standard_normal((1, 2, 1, 64))
    plain, smoothed = E4M3PerBlock(64), SmoothedE4M3PerBlock(64)
    before = np.abs(plain.decode(*plain.encode(k)) - k).mean()
    after = np.abs(smoothed.decode(*smoothed.encode(k)) - k).mean()
    assert after < before / 5


@EACH
def test_what_cannot_be_quantised_is_refused(quantiser: Quantiser) -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(ContractError, match="NaN or infinity"):
            quantiser.encode(rows([1, value]))
    with pytest.raises(ContractError, match="is \\(b, h, s, d\\)"):
        quantiser.encode(np.ones((3, 4)))
    with pytest.raises(ContractError, match="at least one row"):
        E4M3PerBlock(0)
