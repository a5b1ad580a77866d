"""Attention in float64 and in 16 bits: by hand, and against PyTorch."""

import math
from typing import Any

import numpy as np
import pytest

from weft.attention import regimes
from weft.attention.dtypes import Array, ulp
from weft.attention.errors import ContractError
from weft.attention.reference import Causal, attention, attention16, visible
from weft.attention.shapes import SHAPES

pytestmark = pytest.mark.filterwarnings("error")

ALIGNMENTS: tuple[Causal, ...] = (None, "top_left", "bottom_right")


def row(*values: float) -> Array:
    """One head of rows with one channel."""
    return np.array(values).reshape(1, 1, -1, 1)


def test_two_keys_by_hand() -> None:
    # Scores 0 and ln 3: weights 1/4 and 3/4, o = 1/4·8 + 3/4·4 = 5, lse = ln(1 + 3).
    o, lse = attention(row(1.0), row(0.0, math.log(3)), row(8.0, 4.0), scale=1.0)
    assert o.item() == pytest.approx(5.0, abs=1e-15)
    assert lse.item() == pytest.approx(math.log(4), abs=1e-15)


def test_the_default_scale_is_one_over_root_d() -> None:
    q, k, v = np.ones((1, 1, 1, 4)), np.zeros((1, 1, 2, 4)), np.zeros((1, 1, 2, 4))
    k[0, 0, 1], v[0, 0, 1] = math.log(3) / 2, 1.0  # q·k = 2·ln 3, times 1/sqrt(4) is ln 3
    assert attention(q, k, v).o[0, 0, 0] == pytest.approx([0.75] * 4)


def test_alignments_by_hand() -> None:
    assert visible(2, 3, "top_left").tolist() == [[True, False, False], [True, True, False]]
    assert visible(2, 3, "bottom_right").tolist() == [[True, True, False], [True, True, True]]
    assert visible(3, 1, "bottom_right").tolist() == [[False], [False], [True]]
    assert visible(2, 2, None).all()


def test_a_row_without_keys_is_zero_and_minus_infinity() -> None:
    o, lse = attention(row(1.0, 1.0, 1.0), row(5.0), row(7.0), causal="bottom_right")
    assert o.ravel().tolist() == [0.0, 0.0, 7.0]
    assert lse.ravel().tolist() == [-math.inf, -math.inf, 5.0]


def test_heads_share_keys_in_groups() -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["gqa_4"], "f32", 0)
    together = attention(q, k, v)
    for head in range(8):
        alone = attention(q[:, head : head + 1], k[:, head // 4 : head // 4 + 1], v[:, head // 4 : head // 4 + 1])
        assert np.array_equal(together.o[:, head : head + 1], alone.o)


def test_unknown_options_raise() -> None:
    q = row(1.0)
    with pytest.raises(TypeError):
        attention(q, q, q, attn_mask=None)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="top_left"):
        attention(q, q, q, causal="upper")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top_left"):
        attention(q, q, q, causal=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((1, 4, 8), (1, 4, 8), (1, 4, 8)),
        ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 5, 8)),
        ((1, 2, 4, 8), (1, 2, 4, 16), (1, 2, 4, 16)),
        ((2, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
        ((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
    ],
)
def test_shapes_outside_the_contract_raise(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> None:
    with pytest.raises(ContractError):
        attention(np.zeros(q), np.zeros(k), np.zeros(v))


def torch_inputs(torch: Any, *arrays: Array) -> list[Any]:
    """Tensors of the arrays in float64."""
    return [torch.from_numpy(x.astype(np.float64)) for x in arrays]


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("name", ["ragged", "gqa_4_ragged", "few_queries", "d80"])
def test_agrees_with_torch(name: str, causal: Causal) -> None:
    torch = pytest.importorskip("torch")
    shape = SHAPES[name]
    arrays = regimes.make("logits_8", shape, "f32", 1)
    o, _ = attention(*arrays, causal=causal)
    mask = torch.from_numpy(visible(shape.sq, shape.skv, causal))
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 2e-5)):
        q, k, v = (x.to(dtype) for x in torch_inputs(torch, *arrays))
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        assert np.abs(o - theirs.double().numpy()).max() < tolerance


def test_top_left_is_torchs_own_causal() -> None:
    torch = pytest.importorskip("torch")
    arrays = regimes.make("unit_normal", SHAPES["few_queries"], "f32", 2)
    theirs = torch.nn.functional.scaled_dot_product_attention(*torch_inputs(torch, *arrays), is_causal=True)
    assert np.abs(attention(*arrays, causal="top_left").o - theirs.numpy()).max() < 1e-13


@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_lse_agrees_with_torch(causal: Causal) -> None:
    torch = pytest.importorskip("torch")
    shape = SHAPES["few_keys"]
    arrays = regimes.make("logits_16", shape, "f32", 3)
    q, k, _ = torch_inputs(torch, *arrays)
    hidden = torch.from_numpy(~visible(shape.sq, shape.skv, causal))
    theirs = (q @ k.transpose(2, 3) / math.sqrt(shape.d)).masked_fill(hidden, -math.inf).logsumexp(-1).numpy()
    ours = attention(*arrays, causal=causal).lse
    assert np.array_equal(np.isneginf(ours), np.isneginf(theirs))
    assert np.isneginf(ours).any() == (causal == "bottom_right")
    assert np.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("regime", ["unit_normal", "logits_8", "v_offset"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_16_bit_reference_agrees_with_torchs_arithmetic(dtype: str, regime: str) -> None:
    torch = pytest.importorskip("torch")
    arrays = regimes.make(regime, SHAPES["ragged"], dtype, 4)
    ours = attention16(*arrays).o
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    q, k, v = (x.to(kind) for x in torch_inputs(torch, *arrays))
    theirs = (torch.softmax((q * 64**-0.5) @ k.transpose(2, 3), -1) @ v).double().numpy()
    # A sum in another order may round differently in S, in P and in O: a few steps, in very few elements.
    apart = np.abs(ours.astype(np.float64) - theirs)
    assert (apart <= ulp(theirs, dtype)).mean() > 0.98
    gold = attention(*arrays).o
    assert (apart <= np.maximum(np.abs(theirs - gold).max(), ulp(theirs, dtype))).all()
    mine, yours = (np.abs(x - gold).mean() for x in (ours.astype(np.float64), theirs))
    assert mine == pytest.approx(yours, rel=0.02)


def test_16_bit_reference_keeps_the_contract() -> None:
    q, k, v = regimes.make("unit_normal", SHAPES["few_keys"], "bf16", 0)
    o, lse = attention16(q, k, v, causal="bottom_right")
    assert o.dtype == q.dtype and lse.dtype == np.float32
    assert not o[:, :, :80].any() and np.isneginf(lse[:, :, :80]).all()
    with pytest.raises(ContractError, match="f16 or all bf16"):
        attention16(q.astype(np.float32), k, v)
