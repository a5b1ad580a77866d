"""`sdpa_varlen` and `paged_decode`: attention of sequences of different lengths, packed or in pages of a cache."""

from itertools import pairwise
from typing import Any

import torch

from weft.attention.contract import Contract
from weft.core.errors import UsageError

from .choose import DTYPES, INDICES, Wanted, compute
from .dense_call import check_types, empty_outputs, require_group
from .options import mask_of, require_no_gradient, scale_of

VARLEN = Contract(layout="varlen")


def sdpa_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    causal_align: str = "top_left",
    rung: str | None = None,
    **unknown: Any,
) -> Any:
    """Return attention of sequences packed behind each other: (total, heads, dimension), f16 or bf16.

    Sequence b is rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q, and cu_seqlens_k[b] to cu_seqlens_k[b + 1] of k and
    v; each has its own diagonal. The heads of q are a multiple of those of k. LSE is (heads, total), float32. A query
    without a visible key gives 0 and LSE -inf. Forward only.
    """
    mask = mask_of(is_causal, causal_align, unknown)
    require_no_gradient("weft.torch.sdpa_varlen", "weft.torch.sdpa has gradients, one sequence at a time", q, k, v)
    _require_axes("q, k and v", "(total, heads, dimension)", 3, q, k, v)
    check_types(q, k, v)
    if k.shape != v.shape:
        raise UsageError(f"k is {tuple(k.shape)} and v {tuple(v.shape)}: give them the same shape")
    require_group(q.size(1), k.size(1))
    _require_indices(q, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    _require_axes("cu_seqlens_q and cu_seqlens_k", "(sequences + 1,)", 1, cu_seqlens_q, cu_seqlens_k)
    if cu_seqlens_q.shape != cu_seqlens_k.shape or cu_seqlens_q.size(0) < 2:
        ends = f"{cu_seqlens_q.size(0)} and {cu_seqlens_k.size(0)}"
        raise UsageError(
            f"cu_seqlens_q and cu_seqlens_k have {ends} entries: give both one more than there are sequences"
        )
    o, lse = _VARLEN(q, k, v, cu_seqlens_q, cu_seqlens_k, mask, scale_of(scale, q.size(-1)), rung or "")
    return (o, lse) if return_lse else o


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    return_lse: bool = False,
    causal_align: str = "bottom_right",
    rung: str | None = None,
    **unknown: Any,
) -> Any:
    """Return attention of a few queries q (batch, heads, queries, dimension) over keys in pages of a cache.

    k_cache and v_cache are (pages, keys of a page, key heads, dimension). Key n of sequence b is slot n % page of page
    block_table[b, n // page]; it has seq_lens[b] keys, and what is behind them is not read. The heads of q are a
    multiple of the key heads. With `is_causal` the last query sees all keys, the one before it one key fewer. LSE is
    (batch, heads, queries), float32. Forward only.
    """
    mask = mask_of(is_causal, causal_align, unknown)
    require_no_gradient("weft.torch.paged_decode", "a cache is for inference", q, k_cache, v_cache)
    _require_axes("q", "(batch, heads, queries, dimension)", 4, q)
    _require_axes("k_cache and v_cache", "(pages, keys of a page, key heads, dimension)", 4, k_cache, v_cache)
    check_types(q, k_cache, v_cache)
    if k_cache.shape != v_cache.shape:
        raise UsageError(
            f"k_cache is {tuple(k_cache.shape)} and v_cache {tuple(v_cache.shape)}: give them the same shape"
        )
    require_group(q.size(1), k_cache.size(2))
    _require_indices(q, block_table=block_table, seq_lens=seq_lens)
    batch = q.size(0)
    if block_table.dim() != 2 or block_table.size(0) != batch or seq_lens.shape != (batch,) or not block_table.size(1):
        raise UsageError(
            f"block_table is {tuple(block_table.shape)} and seq_lens {tuple(seq_lens.shape)}: "
            f"give ({batch}, pages of a sequence) and ({batch},) for q's batch of {batch}"
        )
    o, lse = _PAGED(q, k_cache, v_cache, block_table, seq_lens, mask, scale_of(scale, q.size(-1)), rung or "")
    return (o, lse) if return_lse else o


def _require_axes(names: str, wanted: str, axes: int, *tensors: torch.Tensor) -> None:
    if any(x.dim() != axes for x in tensors):
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        raise UsageError(f"{names} must be {wanted}, not {shapes}")


def _require_indices(q: torch.Tensor, **tensors: torch.Tensor) -> None:
    for name, x in tensors.items():
        if x.dtype not in INDICES or x.device != q.device:
            raise UsageError(f"{name} is {x.dtype} on {x.device}: give int32 or int64 on q's device ({q.device})")


def _varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    mask: str,
    scale: float,
    rung: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    _require_ends("cu_seqlens_q", cu_seqlens_q, q.size(0))
    _require_ends("cu_seqlens_k", cu_seqlens_k, k.size(0))
    wanted = Wanted(DTYPES[q.dtype], mask, q.size(2), q.size(0), k.size(0), q.size(1) // k.size(1), contract=VARLEN)
    ends = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    return compute(wanted, {"q": q, "k": k, "v": v, **ends}, _varlen_outputs(q), scale, rung)


def _varlen_outputs(q: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), q.new_empty((q.size(1), q.size(0)), dtype=torch.float32)


def _paged(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    mask: str,
    scale: float,
    rung: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    pages, page, kv_heads, d = k_cache.shape
    _require_pages(block_table, seq_lens, pages, page)
    contract = Contract(layout="paged", page=page)
    room, group = block_table.size(1) * page, q.size(1) // kv_heads
    wanted = Wanted(DTYPES[q.dtype], mask, d, q.size(2), room, group, contract=contract)
    cache = {"k_cache": k_cache, "v_cache": v_cache, "block_table": block_table, "seq_lens": seq_lens}
    return compute(wanted, {"q": q, **cache}, empty_outputs(q), scale, rung)


def _require_ends(name: str, ends: torch.Tensor, total: int) -> None:
    """Refuse ends that do not cover the rows. Those on a GPU are not read: the call would have to wait for it."""
    if ends.device.type != "cpu":
        return
    found = ends.tolist()
    if found[0] != 0 or found[-1] != total or any(after < before for before, after in pairwise(found)):
        raise UsageError(
            f"{name} is {found}: it must start with 0, never decrease and end with {total}, the packed rows"
        )


def _require_pages(block_table: torch.Tensor, seq_lens: torch.Tensor, pages: int, page: int) -> None:
    """Refuse lengths beyond the table and pages beyond the cache; on a GPU they are not read, see `_require_ends`."""
    if block_table.device.type != "cpu":
        return
    entries = block_table.size(1)
    if bool(((seq_lens < 0) | (seq_lens > entries * page)).any()):
        raise UsageError(
            f"seq_lens is {seq_lens.tolist()}: {entries} pages of {page} keys hold 0 to {entries * page} keys"
        )
    used = torch.arange(entries) * page < seq_lens[:, None]
    wrong = block_table[used & ((block_table < 0) | (block_table >= pages))]
    if wrong.numel():
        raise UsageError(f"block_table has page {int(wrong[0])} for a used entry: the cache has pages 0 to {pages - 1}")


_VARLEN: Any = torch.library.custom_op("weft::sdpa_varlen", _varlen, mutates_args=())
_VARLEN.register_fake(_varlen_outputs)
_PAGED: Any = torch.library.custom_op("weft::paged_decode", _paged, mutates_args=())
_PAGED.register_fake(empty_outputs)
