"""The FP8 recipe: close to attention as theory predicts, exact where it must be, and worse where a part is missing."""

from typing import Any

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array
from weft.attention.errors import ContractError
from weft.attention.fp8_noise import recipe_noise
from weft.attention.fp8_recipe import Followed, Recipe, RecipeRun
from weft.attention.gates import size_gate
from weft.attention.reference import attention, visible
from weft.attention.shapes import SHAPES


def follow(q: Array, k: Array, v: Array, **chosen: Any) -> Followed:
    recipe = Recipe(**{"out_dtype": "f32", **chosen})
    return RecipeRun(recipe, q, k, v, np.ones((q.shape[2], k.shape[2]), np.bool_)).follow()


@pytest.mark.parametrize("regime", regimes.REGIMES)
def test_the_whole_error_has_its_size(regime: str) -> None:
    """In every regime and mask, per block of rows: the gate's limit for kernels. The expected size is not too large: at
    most 30 times the error, where there is one."""
    for name, causal in (("ragged", None), ("gqa_4_ragged", "bottom_right"), ("few_keys", "bottom_right")):
        shape = SHAPES[name]
        q, k, v = regimes.make(regime, shape, "f16", 0)
        mask = visible(shape.sq, shape.skv, causal)  # type: ignore[arg-type]
        run, exact = RecipeRun(Recipe(), q, k, v, mask), attention(q, k, v, mask=mask)
        followed = run.follow()
        gate = size_gate("quantised", followed.o, exact.o, recipe_noise(run, exact), "f16")
        assert gate.passed, gate
        # Truncation is counted by the largest weight times the largest V, which a long tail has at different keys.
        assert gate.ratio > 1 / 30 or regime in ("zeros", "all_equal", "long_tail")
        assert np.array_equal(np.isneginf(followed.lse), np.isneginf(exact.lse))
        assert not followed.o[np.isneginf(exact.lse)].any()


def test_the_lse_is_of_the_unsmoothed_scores() -> None:
    shape = SHAPES["ragged"]
    q, k, v = regimes.make("unit_normal", shape, "f32", 0)
    k = k + np.float32(5)
    exact = attention(q, k, v).lse
    assert np.abs(exact).max() > 10
    # A score is off by half a step of q and k at random: 2^-4 / √3 · √2 of √64 products of 1, times 1/8, in a few.
    assert np.abs(follow(q, k, v).lse - exact).max() < 0.15


def test_zeros_are_exact_and_constants_come_back() -> None:
    zero, four = np.zeros((1, 2, 70, 64), np.float32), np.full((1, 2, 70, 64), 4, np.float32)
    assert not follow(zero, zero, zero).o.any()
    assert follow(zero, zero, zero).lse == pytest.approx(np.log(70), rel=1e-6)
    # 6 of 70 keys are in a separate tile; 256 · 448 · 64 has few bits, so the tensor core loses nothing.
    assert follow(zero, four, four).o == pytest.approx(4, rel=1e-6)


def test_what_never_flushing_costs() -> None:
    """8192 equal keys. 2^8 · 448 = 1.75 · 2^16 counts fully up to a sum of 2^28 (keys up to 2340), then as 1.5 · 2^16
    up to 2^29 (2731 more), then as 2^16: 0.789 of the sum is left."""
    q, k, v = np.zeros((1, 1, 1, 32)), np.zeros((1, 1, 8192, 32)), np.ones((1, 1, 8192, 32))
    expected = (2**29 + (8192 - 2340.6 - 2730.7) * 2**16) / (8192 * 1.75 * 2**16)
    assert follow(q, k, v, flush=False).o == pytest.approx(expected, rel=1e-3)
    assert follow(q, k, v).o == pytest.approx(1, rel=1e-6)


def test_what_not_smoothing_costs() -> None:
    rng = np.random.default_rng(0)
    shape = SHAPES["split_128"]
    q, v = rng.standard_normal(shape.q), rng.standard_normal(shape.kv)
    k = rng.standard_normal(shape.kv) + 20 * rng.standard_normal((1, 1, 1, shape.d))
    exact = attention(q, k, v).o
    with_mean, without = (np.abs(follow(q, k, v, smooth=smooth).o - exact).mean() for smooth in (False, True))
    assert without < with_mean / 5


def test_a_recipe_that_cannot_be_followed_is_refused() -> None:
    with pytest.raises(ContractError, match="multiple of 64"):
        Recipe(block_n=32)
    with pytest.raises(ContractError, match="unknown dtype"):
        Recipe(out_dtype="f8")
