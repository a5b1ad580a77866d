"""The family of attention against PyTorch and against arithmetic: masks, biases, caps, sinks and layouts."""

import math

import numpy as np
import pytest
import torch

from weft.attention.contract import DENSE, Contract
from weft.attention.emulate import Algorithm, emulate
from weft.attention.errors import ContractError
from weft.attention.layouts import arranged, pack, unpack
from weft.attention.reference import Attended, attention, visible
from weft.attention.regimes import make
from weft.attention.shapes import Shape
from weft.tasks.attention_inputs import draw_attention
from weft.tasks.task import Workload

SHAPE = Shape("t", 2, 4, 2, 21, 45, 16)
POINTS = {
    "window": Contract(left=7, right=3),
    "left": Contract(left=0),
    "cap": Contract(soft_cap=2.0),
    "sinks": Contract(sinks=True),
    "alibi": Contract(bias="alibi"),
    "everything": Contract(left=9, soft_cap=3.0, bias="additive", sinks=True, scale=0.5),
    "paged": Contract(layout="paged", left=30),
}


def by_torch(contract: Contract, causal: str | None, terms: dict[str, np.ndarray]) -> Attended:
    """Compute every part by its definition, with loops and PyTorch's softmax in float64."""
    q, k, v = (torch.from_numpy(x.astype(np.float64)) for x in make("unit_normal", SHAPE, "f32", 0))
    k, v = (x.repeat_interleave(SHAPE.group, 1) for x in (k, v))
    s = q @ k.transpose(2, 3) * (contract.scale or 1 / math.sqrt(SHAPE.d))
    if contract.soft_cap is not None:
        s = torch.tanh(s / contract.soft_cap) * contract.soft_cap
    lengths = contract.lengths(SHAPE)
    for b in range(SHAPE.b):
        skv = SHAPE.skv if lengths is None else int(lengths[1][b])
        for i in range(SHAPE.sq):
            at = i if causal == "top_left" else i + skv - SHAPE.sq
            for j in range(SHAPE.skv):
                for h in range(SHAPE.hq):
                    if contract.bias == "alibi":
                        s[b, h, i, j] -= abs(j - at) * float(terms["slopes"][h])
                    if contract.bias == "additive":
                        s[b, h, i, j] += float(terms["bias"][h, i, j])
                last = at if causal else at + contract.right if contract.right is not None else skv
                first = 0 if contract.left is None else at - contract.left
                if not first <= j <= last or j >= skv:
                    s[b, :, i, j] = -torch.inf
    sinks = (
        torch.from_numpy(terms["sinks"].astype(np.float64)) if contract.sinks else torch.full((SHAPE.hq,), -torch.inf)
    )
    s = torch.cat([s, sinks[None, :, None, None].expand(SHAPE.b, -1, SHAPE.sq, 1)], 3)
    weights = torch.nan_to_num(torch.softmax(s, 3))  # a row of -inf
    return Attended((weights[..., :-1] @ v).numpy(), torch.logsumexp(s, 3).numpy())


@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right"])
@pytest.mark.parametrize("point", POINTS)
def test_reference_and_emulation_of_a_point_agree_with_pytorch(point: str, causal: str | None) -> None:
    contract = POINTS[point]
    terms = contract.draw_terms(SHAPE, 0)
    expected = by_torch(contract, causal, terms)
    q, k, v = make("unit_normal", SHAPE, "f32", 0)
    mask, logits = contract.mask(SHAPE, causal), contract.logits(SHAPE, causal, terms)
    found = attention(q, k, v, mask=mask, logits=logits, scale=contract.scale)
    np.testing.assert_allclose(found.o, expected.o, atol=1e-12)
    np.testing.assert_allclose(found.lse, expected.lse, atol=1e-12)
    for base, splits in ((math.e, 1), (2, 3)):
        algorithm = Algorithm(block_m=16, block_n=16, splits=splits, exp_base=base)
        near = emulate(algorithm, q, k, v, mask=mask, logits=logits, scale=contract.scale)
        np.testing.assert_allclose(near.o, expected.o, atol=3e-6)
        np.testing.assert_allclose(near.lse, expected.lse, atol=5e-6)
        assert (
            np.abs(near.lse - expected.lse)[np.isfinite(expected.lse)] <= near.allowance[np.isfinite(expected.lse)]
        ).all()


def test_masks_are_windows() -> None:
    assert np.array_equal(visible(3, 5, "bottom_right"), np.tri(3, 5, 2, dtype=bool))
    assert np.array_equal(visible(3, 5, "top_left"), np.tri(3, 5, dtype=bool))
    assert visible(4, 4, None, left=1, right=0).sum(axis=1).tolist() == [1, 2, 2, 2]
    assert np.array_equal(visible(5, 5, None, right=0), visible(5, 5, "bottom_right"))


def test_layouts_convert_back_and_forth() -> None:
    shape = Shape("t", 5, 2, 1, 9, 37, 8)
    q, k, v = make("unit_normal", shape, "f16", 1)
    varlen = Contract(layout="varlen")
    lq, lk = varlen.lengths(shape) or ((), ())
    assert list(lq) == [9, 4, 0, 6, 2] and list(lk) == [37, 22, 13, 0, 27]
    arrays = arranged(varlen, shape, {"q": q, "k": k, "v": v}, 0)
    assert arrays["cu_seqlens_q"].tolist() == [0, 9, 13, 13, 19, 21] and arrays["k"].shape == (99, 1, 8)
    assert np.array_equal(arrays["k"][37 + 3, 0], k[1, 0, 3])
    back = unpack(varlen, shape, pack(varlen, shape, {"o": q}), {"o": np.zeros(q.shape)})["o"]
    assert all(np.array_equal(back[b, :, :n], q[b, :, :n]) and not back[b, :, n:].any() for b, n in enumerate(lq))

    paged = Contract(layout="paged", page=16)
    arrays = arranged(paged, shape, {"q": q, "k": k, "v": v}, 0)
    table, cache = arrays["block_table"], arrays["v_cache"]
    assert (
        cache.shape == (9, 16, 1, 8) and len(set(table[0]) | set(table[1, :2]) | {table[2, 0]} | set(table[4, :2])) == 8
    )
    assert all(np.array_equal(cache[table[1, j // 16], j % 16], v[1, :, j]) for j in range(22))
    assert (np.abs(cache[table[1, 1], 6:]) == 1024).all(), "slots behind the last key hold garbage"


def test_pages_of_codes_have_scales_that_sequences_share() -> None:
    shape = Shape("t", 5, 4, 2, 3, 37, 8)
    contract = Contract(layout="paged", coded=("k", "v"))
    problem = draw_attention(contract, Workload(shape, "f16", "none", "unit_normal", 1, "e4m3"))
    arrays, (_, lengths) = problem.arrays, contract.lengths(shape) or ((), ())
    assert tuple(arrays) == ("q", "k_cache_code", "v_cache_code", "block_table", "seq_lens", "k_scale", "v_scale")
    numbers = dict(zip("qkv", make("unit_normal", shape, "f16", 1), strict=True))
    assert np.array_equal(arrays["q"], numbers["q"]) and arrays["q"].dtype == np.float16
    for name, judged in (("k", problem.k), ("v", problem.v)):
        scale, cache = arrays[f"{name}_scale"], torch.from_numpy(arrays[f"{name}_cache_code"])
        read = [numbers[name][b, :, :n].astype(np.float64) for b, n in enumerate(lengths)]
        largest = np.max([np.abs(x).max(axis=(1, 2), initial=0) for x in read], axis=0)
        np.testing.assert_allclose(scale, largest / 448, rtol=2.0**-23)
        values = cache.view(torch.float8_e4m3fn).to(torch.float64).numpy() * scale[:, None]  # (page, slot, hkv, d)
        for b, n in enumerate(lengths):
            for key in range(n):
                row = values[arrays["block_table"][b, key // 16], key % 16]
                np.testing.assert_allclose(row, judged[b, :, key], rtol=2.0**-23)
                assert (np.abs(row - numbers[name][b, :, key]) <= np.abs(row) / 15 + scale[:, None] * 2.0**-10).all()
            assert not judged[b, :, n:].any()
        behind = values[arrays["block_table"][1, lengths[1] // 16], lengths[1] % 16 :]
        assert np.isnan(behind).any() and np.isfinite(behind).any(), "slots behind the last key hold any byte"


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.1}, {"layout": "ragged"}, {"left": -1}, {"soft_cap": -2.0}, {"coded": ("p",)},
        {"layout": "paged", "coded": ("q", "k", "v")}, {"layout": "varlen", "coded": ("v",)},
    ],
)  # fmt: skip
def test_what_the_contract_does_not_define_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ContractError):
        contract = Contract(**options)
        contract.logits(SHAPE, None, {})
    assert DENSE.inputs == ("q", "k", "v") and DENSE.defines() == {}
