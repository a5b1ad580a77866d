"""The emulated algorithm: equal to the definition where nothing is rounded, and computed by hand where something is."""

import math

import ml_dtypes
import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array
from weft.attention.emulate import Algorithm, emulate
from weft.attention.errors import ContractError
from weft.attention.gates import tight_gate
from weft.attention.reference import Causal, attention
from weft.attention.shapes import SHAPES
from weft.attention.stages import PER_TILE, STAGES

pytestmark = pytest.mark.filterwarnings("error")

ALIGNMENTS: tuple[Causal, ...] = (None, "top_left", "bottom_right")
WHOLE = Algorithm(block_m=128, block_n=4096)


def row(*values: float) -> Array:
    """One head of rows with one channel."""
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("name", ["ragged", "gqa_4_ragged", "few_keys", "split_4", "one_token"])
@pytest.mark.parametrize(
    "algorithm",
    [
        WHOLE,
        Algorithm(block_m=64, block_n=32),
        Algorithm(block_m=16, block_n=16, splits=3),
        Algorithm(block_m=16, block_n=64, splits=5, exp_base=2),
        Algorithm(block_m=32, block_n=7, scale_in="q", exp_base=2),
    ],
    ids=["whole", "tiled", "split", "empty_splits", "base_2_in_q"],
)
def test_in_float32_it_equals_the_reference(algorithm: Algorithm, name: str, causal: Causal) -> None:
    inputs = regimes.make("unit_normal", SHAPES[name], "f32", 0)
    ours, expected = emulate(algorithm, *inputs, causal=causal), attention(*inputs, causal=causal)
    assert ours.o.dtype == ours.lse.dtype == np.float32
    assert np.abs(ours.o - expected.o).max() < 1e-5
    seen = np.isfinite(expected.lse)
    assert np.array_equal(np.isneginf(ours.lse), ~seen)
    assert np.abs(ours.lse[seen] - expected.lse[seen]).max(initial=0) < 1e-5
    assert np.isfinite(ours.allowance).all()


@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_every_regime_stays_finite(regime: str) -> None:
    for dtype in regimes.INPUT_DTYPES:
        q, k, v = regimes.make(regime, SHAPES["gqa_4_ragged"], dtype, 0)
        ours = emulate(Algorithm(block_m=16, block_n=16, splits=2, p_dtype=dtype, out_dtype=dtype), q, k, v)
        assert ours.o.dtype == q.dtype
        assert np.isfinite(ours.o.astype(np.float64)).all()


def test_stages_by_hand() -> None:
    # Two tiles of one key: scores 0 and ln 2, so the second tile halves the first one's sums.
    ours = emulate(Algorithm(block_m=1, block_n=1), row(1), row(0, math.log(2)), row(6, 3), scale=1.0, keep_stages=True)
    first, second = ours.tiles
    assert (first.m.item(), first.p.item(), first.l.item(), first.u.item()) == (0, 1, 1, 6)
    assert second.scores.item() == pytest.approx(math.log(2))
    assert second.m.item() == pytest.approx(math.log(2))
    assert (second.p.item(), second.l.item(), second.u.item()) == pytest.approx((1, 1.5, 6))
    assert ours.o.item() == pytest.approx(4)
    assert ours.lse.item() == pytest.approx(math.log(3))
    assert (first.keys, second.keys) == (range(1), range(1, 2))


def test_stages_are_those_of_the_whole() -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["gqa_4_ragged"], "f32", 0)
    ours = emulate(Algorithm(block_m=16, block_n=32, splits=2), q, k, v, causal="top_left", keep_stages=True)
    assert [(tile.index, tile.split, tile.first_key) for tile in ours.tiles] == [(0, 0, 0), (1, 0, 32), (2, 1, 64)]
    assert np.array_equal(np.concatenate([tile.k for tile in ours.tiles], axis=2), k)
    assert np.array_equal(np.concatenate([tile.v for tile in ours.tiles], axis=2), v)
    scores = np.concatenate([tile.scores for tile in ours.tiles], axis=3)
    assert np.allclose(scores, q @ np.repeat(k, 4, axis=1).swapaxes(2, 3) / 8, atol=1e-5)
    masked = np.concatenate([tile.masked for tile in ours.tiles], axis=3)
    assert np.array_equal(np.isneginf(masked[0, 0]), ~np.tri(33, 70, dtype=np.bool_))
    last = ours.tiles[1]
    assert np.array_equal(ours.partials[0].o, last.u) and np.array_equal(ours.partials[0].l, last.l)
    # Every row's own key is among the first 33: the last tile, and with it the second split, is never needed.
    assert not ours.tiles[2].visited.any() and np.isneginf(ours.partials[1].m).all()
    assert ours.tiles[1].visited.tolist() == [False] * 32 + [True]


def test_stage_names() -> None:
    assert STAGES == ("q", "k", "v", "scores", "masked", "m", "p", "l", "u", "o", "lse")
    (tile,) = emulate(WHOLE, row(1), row(1), row(1), keep_stages=True).tiles
    for name in PER_TILE:
        assert tile.stage(name) is getattr(tile, name)
    with pytest.raises(ContractError, match="no stage 'index'"):
        tile.stage("index")


def test_scores_in_base_two() -> None:
    ours = emulate(Algorithm(block_m=1, block_n=8, exp_base=2), row(1), row(1), row(1), scale=1.0, keep_stages=True)
    assert ours.tiles[0].scores.item() == pytest.approx(math.log2(math.e))
    assert ours.lse.item() == pytest.approx(1)


def test_declared_roundings() -> None:
    p = math.exp(-0.3)
    q, k, v = row(1), row(0, -0.3), row(0, 1)

    def run(**changes: object) -> tuple[float, float, float]:
        algorithm = Algorithm(**{"block_m": 1, "block_n": 2, **changes})  # type: ignore[arg-type]
        ours = emulate(algorithm, q, k, v, scale=1.0, keep_stages=True)
        tile = ours.tiles[0]
        return float(tile.p[..., 1].item()), float(tile.l.item()), float(ours.o.item())

    def e4m3(x: float) -> float:
        return float(ml_dtypes.float8_e4m3fn(x))

    assert run() == pytest.approx((p, 1 + p, p / (1 + p)))
    half = float(np.float16(p))
    assert run(p_dtype="f16") == pytest.approx((half, 1 + p, half / (1 + p)), rel=1e-6)
    assert run(p_dtype="f16", l_of_rounded_p=True)[1] == pytest.approx(1 + half, rel=1e-6)
    assert run(p_dtype="e4m3")[0] == e4m3(p)
    assert run(s_dtype="bf16")[0] == pytest.approx(math.exp(float(ml_dtypes.bfloat16(-0.3))))
    assert run(operand_dtype="f16")[0] == pytest.approx(math.exp(float(np.float16(-0.3))))
    assert run(out_dtype="bf16")[2] == float(ml_dtypes.bfloat16(p / (1 + p)))
    assert run(acc="bf16")[2] == pytest.approx(
        float(ml_dtypes.bfloat16(math.exp(float(ml_dtypes.bfloat16(-0.3))))) / (1 + p), rel=2e-3
    )


def test_scaled_e4m3_keeps_small_weights() -> None:
    # exp(-7) is below half of e4m3's least step, 2^-9; times 2^8 it is not.
    q, k, v = row(1), row(0, -7), row(0, 1)
    lost = emulate(Algorithm(block_m=1, block_n=2, p_dtype="e4m3"), q, k, v, scale=1.0)
    kept = emulate(Algorithm(block_m=1, block_n=2, p_dtype="e4m3", p_scale=256.0), q, k, v, scale=1.0)
    assert lost.o.item() == 0
    assert kept.o.item() == pytest.approx(math.exp(-7) / (1 + math.exp(-7)), rel=2**-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_n": 0}, "at least 1"),
        ({"splits": 0}, "at least 1"),
        ({"p_dtype": "fp16"}, "unknown dtype 'fp16'"),
        ({"acc": "e4m3"}, "acc is"),
        ({"scale_in": "k"}, "scale_in"),
        ({"exp_base": 10.0}, "exp_base"),
        ({"p_scale": 448.0}, "power of two"),
    ],
)
def test_misuse(change: dict[str, object], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        Algorithm(**{"block_m": 16, "block_n": 16, **change})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Algorithm(block_m=16, block_n=16, tile_order="rows")  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [0.1, 1.3, 2.9])
def test_sums_key_by_key_are_allowed_for_and_a_lost_key_is_not(value: float) -> None:
    """Equal terms round to the same side every time: the error of a float32 sum grows with the keys."""
    keys = 4096
    q, k, v = row(0.0), row(*[0.0] * keys), row(*[value] * keys)
    ours = emulate(Algorithm(block_m=16, block_n=32), q, k, v)
    one_by_one = np.add.accumulate(v.reshape(-1), dtype=np.float32)[-1] / np.float32(keys)
    one_lost = v.reshape(-1)[1:].astype(np.float64).sum() / keys
    limit = 1e-5 + ours.allowance.item()
    assert abs(one_by_one - ours.o.item()) <= limit * value
    assert abs(one_lost - ours.o.item()) == pytest.approx(value / keys, rel=0.05)
    assert not tight_gate(np.full_like(ours.o, one_lost), ours.o, v, "f32", allowance=ours.allowance).passed


@pytest.mark.parametrize("which", range(3))
def test_an_operand_between_two_values_may_become_either(which: int) -> None:
    """Decoded in another order, 1 + 2^-11 rounds to 1 or to 1 + 2^-10 of f16."""
    short = Algorithm(block_m=16, block_n=32, operand_dtype="f16")
    arrays = [row(0.7), row(0.3, 0.9, -0.4), row(1.5, -2.0, 0.25)]
    plain = emulate(short, *arrays).allowance.item()
    between = [*arrays]
    between[which] = between[which].copy()
    between[which][0, 0, 0, 0] = 1 + 2.0**-11
    ours = emulate(short, *between)
    found = []
    for to in (1.0, 1 + 2.0**-10):
        fixed = [*between]
        fixed[which] = between[which].copy()
        fixed[which][0, 0, 0, 0] = to
        found.append(emulate(short, *fixed).o.item())
    largest = np.abs(between[2]).max()
    assert ours.o.item() in found
    assert abs(found[0] - found[1]) <= (ours.allowance.item() - plain * 2) * largest + 1e-6
    assert plain < 1e-6 < ours.allowance.item() < 5e-3
