"""q, k, v and sinks of a call, checked, with the four axes that kernels have."""

from typing import Any

import torch

from weft.core.errors import UsageError

from .choose import DTYPES


class DenseCall:
    """q, k and v reshaped to (batch, heads, length, dimension), and the reverse for the result."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, enable_gqa: bool) -> None:
        check_types(q, k, v)
        if k.size(-2) != v.size(-2):
            raise UsageError(f"k has {k.size(-2)} rows and v has {v.size(-2)}: give them the same number")
        if k.shape[-3:-2] != v.shape[-3:-2]:
            raise UsageError(f"k has {k.size(-3)} heads and v {v.size(-3)}: give them the same number")
        heads, kv_heads = (x.size(-3) if x.dim() > 2 else 1 for x in (q, k))
        if enable_gqa:
            require_group(heads, kv_heads)
        elif heads != kv_heads and 1 not in (heads, kv_heads):
            raise UsageError(f"{heads} query heads and {kv_heads} key heads: pass enable_gqa=True, or equal numbers")
        batch = torch.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
        if heads == 1 and kv_heads > 1:
            heads = kv_heads
        self.shape = (*batch, heads, q.size(-2)) if q.dim() > 2 or k.dim() > 2 else (q.size(-2),)
        self.d = q.size(-1)
        self.q = q.expand(*batch, heads, q.size(-2), self.d).reshape(-1, heads, q.size(-2), self.d)
        self.k, self.v = (
            x.expand(*batch, kv_heads, x.size(-2), self.d).reshape(-1, kv_heads, x.size(-2), self.d) for x in (k, v)
        )

    def sinks(self, sinks: torch.Tensor | None) -> torch.Tensor | None:
        """Return a sink per query head in float32."""
        if sinks is None:
            return None
        heads = self.q.size(1)
        if sinks.shape != (heads,) or sinks.dtype not in (torch.float32, self.q.dtype) or sinks.device != self.q.device:
            raise UsageError(
                f"sinks are {sinks.dtype} {tuple(sinks.shape)} on {sinks.device}: give one logit per query head, "
                f"({heads},), in float32 or q's type on q's device ({self.q.device})"
            )
        return sinks.to(torch.float32)

    def result(self, o: torch.Tensor, lse: torch.Tensor, return_lse: bool) -> Any:
        o = o.reshape(*self.shape, self.d)
        return (o, lse.reshape(self.shape)) if return_lse else o


def require_group(heads: int, kv_heads: int) -> None:
    """Refuse numbers of heads in which key heads cannot be shared evenly."""
    if heads % kv_heads:
        raise UsageError(f"{heads} query heads are not a multiple of {kv_heads} key heads")


def check_types(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuse q, k and v of different or other types, devices and head dimensions, and empty ones."""
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
        raise UsageError(f"q, k and v must be all f16, all bf16 or all f32, not {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise UsageError(f"q, k and v are on {q.device}, {k.device}, {v.device}: put them on one device")
    if min(q.dim(), k.dim(), v.dim()) < 2:
        raise UsageError("q, k and v must be (…, heads, length, dimension); give at least (length, dimension)")
    if not q.size(-1) == k.size(-1) == v.size(-1):
        raise UsageError(f"head dimensions {q.size(-1)}, {k.size(-1)}, {v.size(-1)}: q, k and v must have the same")
    if 0 in (*q.shape, *k.shape, *v.shape):
        raise UsageError(f"a tensor is empty: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")


def empty_outputs(q: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O and LSE of q (batch, heads, length, dimension) without values: also what operators return as fakes."""
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=torch.float32)
