"""weft.torch.sdpa_varlen and paged_decode, compared with each sequence alone in float64."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.torch.test_sdpa import draw
from tests.torch.test_variants import agree, reference
from weft.core.errors import UsageError
from weft.torch import ForwardOnly, paged_decode, sdpa_varlen
from weft.torch.lengths import _PAGED, _VARLEN

D = 32
ENDS_Q, ENDS_K = torch.tensor([0, 19, 19, 24, 90]), torch.tensor([0, 7, 30, 30, 100])
"""The second sequence has no query, the third no key."""


def packed(dtype: torch.dtype = torch.float16, heads: int = 4) -> tuple[torch.Tensor, ...]:
    return draw((90, heads, D), (100, 2, D), (100, 2, D), dtype=dtype)


@pytest.mark.parametrize("align", ["", "top_left", "bottom_right"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_packed_sequences(dtype: torch.dtype, align: str) -> None:
    q, k, v = packed(dtype)
    causal = {"is_causal": True, "causal_align": align} if align else {}
    o, lse = sdpa_varlen(q, k, v, ENDS_Q, ENDS_K.int(), return_lse=True, **causal)
    assert o.shape == q.shape and o.dtype == dtype and lse.shape == (4, 90)
    assert not o[19:24].any() and torch.isneginf(lse[:, 19:24]).all()
    for (q0, q1), (k0, k1) in zip(pairwise(ENDS_Q.tolist()), pairwise(ENDS_K.tolist()), strict=True):
        if q1 > q0 and k1 > k0:
            own = [x.transpose(0, 1) for x in (q[q0:q1], k[k0:k1], v[k0:k1])]
            agree((o[q0:q1].transpose(0, 1), lse[:, q0:q1]), reference(*own, align=align), v)


def cache(dtype: torch.dtype, page: int, sq: int = 3) -> tuple[torch.Tensor, ...]:
    """Return q, a cache with garbage in the slots that no sequence uses, a table in mixed order, and lengths."""
    pages, lengths = 12, torch.tensor([2 * page + 1, 1, 0, 4 * page])
    q, k, v = draw((4, 4, sq, D), (pages, page, 2, D), (pages, page, 2, D), dtype=dtype, seed=page)
    table = torch.full((4, 4), -1)
    free = torch.randperm(pages, generator=torch.Generator().manual_seed(page)).tolist()
    used = torch.zeros(pages, page, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        for n in range(length):
            if n % page == 0:
                table[b, n // page] = free.pop()
            used[table[b, n // page], n % page] = True
    k[~used] = v[~used] = torch.nan
    return q, k, v, table, lengths


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "page"), [(torch.float32, 5), (torch.float16, 16), (torch.bfloat16, 1)])
def test_pages(dtype: torch.dtype, page: int, causal: bool) -> None:
    q, k, v, table, lengths = cache(dtype, page)
    o, lse = paged_decode(q, k, v, table.int(), lengths, is_causal=causal, return_lse=True)
    assert o.shape == q.shape and o.dtype == dtype and lse.shape == q.shape[:3]
    assert not o[2].any() and torch.isneginf(lse[2]).all()
    for b in (0, 1, 3):
        n = int(lengths[b])
        keys, values = (x[table[b]].flatten(0, 1)[:n].transpose(0, 1) for x in (k, v))
        agree((o[b], lse[b]), reference(q[b], keys, values, align="bottom_right" if causal else ""), values)


def test_the_scale_is_that_of_the_caller() -> None:
    q, k, v, table, lengths = cache(torch.float32, 5)
    halved = paged_decode(q / 2, k, v, table, lengths, scale=0.5)
    assert (halved - paged_decode(q, k, v, table, lengths, scale=0.25)).abs().max() < 4e-6
    q, k, v = packed()
    assert torch.equal(
        sdpa_varlen(q / 2, k, v, ENDS_Q, ENDS_K, scale=0.5), sdpa_varlen(q, k, v, ENDS_Q, ENDS_K, scale=0.25)
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [({"q": packed(torch.float32)[0]}, "all f16"), ({"q": packed(heads=3)[0]}, "not a multiple of 2"),
     ({"v": packed()[2][:99]}, "same shape"), ({"q": packed()[0][0]}, r"must be \(total, heads, dimension\)"),
     ({"cu_seqlens_q": ENDS_Q.float()}, "give int32 or int64"), ({"cu_seqlens_q": ENDS_Q[1:]}, "one more than there"),
     ({"cu_seqlens_k": ENDS_K + 1}, "must start with 0"), ({"cu_seqlens_k": ENDS_K[[0, 2, 1, 3, 4]]}, "never decrease"),
     ({"cu_seqlens_q": ENDS_Q.clamp(max=80)}, "end with 90"), ({"window": (3, 0)}, "window is supported by"),
     ({"soft_cap": 2.0}, "soft_cap is supported"), ({"enable_gqa": True}, "leave it out"),
     ({"max_seqlen_q": 9}, "unknown"), ({"rung": "fa_triton"}, "it computes sdpa, not sdpa_varlen")],
)  # fmt: skip
def test_packed_calls_that_are_refused(change: dict[str, Any], why: str) -> None:
    given = dict(zip(("q", "k", "v"), packed(), strict=True)) | {"cu_seqlens_q": ENDS_Q, "cu_seqlens_k": ENDS_K}
    with pytest.raises(UsageError, match=why):
        sdpa_varlen(**{**given, **change})


def test_packed_float32_names_the_types_of_the_rung() -> None:
    with pytest.raises(UsageError, match="varlen_triton: it takes f16 or bf16, not f32"):
        sdpa_varlen(*packed(torch.float32), ENDS_Q, ENDS_K)


@pytest.mark.parametrize(
    ("change", "why"),
    [({"seq_lens": torch.tensor([11, 1, 0, 21])}, "4 pages of 5 keys hold 0 to 20 keys"),
     ({"seq_lens": torch.tensor([11, 1, 0, -1])}, "hold 0 to 20"), ({"seq_lens": torch.tensor([1])}, r"give \(4, "),
     ({"block_table": torch.full((4, 4), 12)}, "has page 12 for a used entry: the cache has pages 0 to 11"),
     ({"block_table": torch.full((4, 4), -1)}, "has page -1 for a used entry"),
     ({"block_table": torch.zeros(4, 4)}, "give int32 or int64"), ({"v_cache": torch.zeros(12, 4, 2, D)}, "same shape"),
     ({"is_causal": True, "causal_align": "top_left"}, "masks none, bottom_right, not top_left"),
     ({"sinks": torch.zeros(4)}, "sinks is supported by weft.torch.sdpa only")],
)  # fmt: skip
def test_paged_calls_that_are_refused(change: dict[str, Any], why: str) -> None:
    names = ("q", "k_cache", "v_cache", "block_table", "seq_lens")
    given = dict(zip(names, cache(torch.float32, 5), strict=True))
    with pytest.raises(UsageError, match=why):
        paged_decode(**{**given, **change})


def test_they_are_forward_only() -> None:
    q, k, v = packed()
    with pytest.raises(ForwardOnly, match="sdpa_varlen is forward only"):
        sdpa_varlen(q, k.requires_grad_(), v, ENDS_Q, ENDS_K)
    q, k, v, *rest = cache(torch.float32, 5)
    with pytest.raises(ForwardOnly, match="paged_decode is forward only"):
        paged_decode(q.requires_grad_(), k, v, *rest)


def test_the_operators_pass_pytorchs_checks() -> None:
    torch.library.opcheck(_VARLEN, (*packed(), ENDS_Q, ENDS_K, "none", 0.25, ""))
    q, k, v, table, lengths = cache(torch.float32, 5)
    torch.library.opcheck(_PAGED, (q, k.nan_to_num(), v.nan_to_num(), table, lengths, "bottom_right", 0.25, ""))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_makes_one_graph(dynamic: bool) -> None:
    def block(q: torch.Tensor, *cached: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = paged_decode(2 * q, *cached, is_causal=True)
        return o + 1

    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for sq in (1, 3):
        tensors = cache(torch.float32, 5, sq)
        assert torch.equal(compiled(*tensors), block(*tensors))


def test_shapes_are_known_without_running() -> None:
    o, lse = sdpa_varlen(*(x.to("meta") for x in (*packed(), ENDS_Q, ENDS_K)), return_lse=True)
    assert (o.shape, o.dtype, lse.shape, lse.dtype) == ((90, 4, D), torch.float16, (4, 90), torch.float32)
