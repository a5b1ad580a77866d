"""`sdpa` and `fp8_sdpa`: PyTorch's scaled_dot_product_attention on kernels of the ladder. `sdpa` has gradients."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.attention.quantise import QUANTISERS
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.kernels.ladder import ENCODINGS, RUNGS, Rung

from .kernel_call import Chosen, kernel_for, run_kernel

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
ALIGNMENTS = ("top_left", "bottom_right")
_REFUSED = {
    "attn_mask": "attn_mask is not supported: the kernels have only causal masks (is_causal, causal_align)",
    "dropout_p": "dropout_p is not supported: the kernels compute no dropout; apply it in the caller",
}
ENCODED = ("fp8_sdpa", "quantised_sdpa")
"""Tasks of rungs that compute on 8-bit codes, which are inputs or made by the kernel."""
SELF_QUANTISED = "e4m3"
"""The encoding of rungs that quantise by themselves."""
BACKWARD = ("backward_mma", "backward")
"""The rungs that compute gradients, the fastest first; the last supports every call that a forward rung does."""
TILE = 128
"""A rung that takes only full tiles gets sequences that are a multiple of this."""


@dataclass(frozen=True)
class Wanted:
    """The properties of a call that decide which kernels support it."""

    dtype: str
    mask: str
    d: int
    sq: int
    skv: int
    group: int
    """Query heads per key head."""
    encoding: str = ""
    """The encoding of 8-bit codes; empty where Q, K and V are numbers."""


class ForwardOnly(UsageError):
    """These kernels have no backward pass."""


def sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    causal_align: str = "top_left",
    rung: str | None = None,
    **unknown: Any,
) -> Any:
    """Return softmax(q·kᵀ·scale)·v as torch.nn.functional.scaled_dot_product_attention does; with LSE on request.

    f16, bf16 or f32; (…, heads, length, dimension). A query that sees no key (`bottom_right` with more queries than
    keys) gives 0 and LSE -inf. `rung` names a kernel of the ladder; the default is the highest that supports the call.
    Gradients of O flow to q, k and v through the rung `backward_mma`, or `backward` where that does not support the
    call; LSE has none.
    """
    mask = _mask(is_causal, causal_align, unknown)
    call = _Call(q, k, v, enable_gqa)
    factor = 1.0 / math.sqrt(q.size(-1)) if scale is None else float(scale)
    o, lse = _SDPA(call.q, call.k, call.v, mask, factor, rung or "")
    return call.result(o, lse, return_lse)


def fp8_sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    causal_align: str = "top_left",
    encoding: str = "e4m3",
    rung: str | None = None,
    **unknown: Any,
) -> Any:
    """Return `sdpa` on 8-bit codes: q, k and v are quantised, and attention runs on the codes. The result has q's type.

    `encoding` is e4m3, or the linear sim_fp8. A rung that takes codes gets those of Weft's quantisers, with a scale per
    head; one that quantises by itself (`fp8_mma`) gets q, k and v.
    """
    mask = _mask(is_causal, causal_align, unknown)
    if encoding not in ENCODINGS:
        raise UsageError(f"encoding {encoding!r}: use one of {', '.join(ENCODINGS)}")
    _require_no_gradient(q, k, v)
    call = _Call(q, k, v, enable_gqa)
    factor = 1.0 / math.sqrt(q.size(-1)) if scale is None else float(scale)
    o, lse = _FP8_SDPA(call.q, call.k, call.v, mask, factor, encoding, rung or "")
    return call.result(o, lse, return_lse)


def _mask(is_causal: bool, causal_align: str, unknown: dict[str, Any]) -> str:
    for name in unknown:
        raise UsageError(_REFUSED.get(name, f"unknown option {name!r}"))
    if causal_align not in ALIGNMENTS:
        raise UsageError(f"causal_align {causal_align!r}: use 'top_left' (PyTorch) or 'bottom_right' (FlashAttention)")
    return causal_align if is_causal else "none"


class _Call:
    """q, k and v reshaped to (batch, heads, length, dimension), and the reverse for the result."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, enable_gqa: bool) -> None:
        _check(q, k, v)
        if k.shape[-3:-2] != v.shape[-3:-2]:
            raise UsageError(f"k has {k.size(-3)} heads and v {v.size(-3)}: give them the same number")
        heads, kv_heads = (x.size(-3) if x.dim() > 2 else 1 for x in (q, k))
        if enable_gqa:
            if heads % kv_heads:
                raise UsageError(f"{heads} query heads are not a multiple of {kv_heads} key heads")
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

    def result(self, o: torch.Tensor, lse: torch.Tensor, return_lse: bool) -> Any:
        o = o.reshape(*self.shape, self.d)
        return (o, lse.reshape(self.shape)) if return_lse else o


def _require_no_gradient(*tensors: torch.Tensor) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise ForwardOnly(
            "weft.torch.fp8_sdpa is forward only: no gradient can flow through codes. "
            "Call it under torch.no_grad(), or detach q, k and v; use weft.torch.sdpa for training"
        )


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
        raise UsageError(f"q, k and v must be all f16, all bf16 or all f32, not {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise UsageError(f"q, k and v are on {q.device}, {k.device}, {v.device}: put them on one device")
    if min(q.dim(), k.dim(), v.dim()) < 2:
        raise UsageError("q, k and v must be (…, heads, length, dimension); give at least (length, dimension)")
    if k.size(-2) != v.size(-2):
        raise UsageError(f"k has {k.size(-2)} rows and v has {v.size(-2)}: give them the same number")
    if not q.size(-1) == k.size(-1) == v.size(-1):
        raise UsageError(f"head dimensions {q.size(-1)}, {k.size(-1)}, {v.size(-1)}: q, k and v must have the same")
    if 0 in (*q.shape, *k.shape, *v.shape):
        raise UsageError(f"a tensor is empty: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}")


def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, scale: float, rung: str
) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = choose_rung(_wanted(q, k, mask), rung)
    o, lse = _empty(q)
    tensors = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous()}
    run_kernel(Chosen(chosen.name, DTYPES[q.dtype], mask, scale), tensors, {"o": o, "lse": lse})
    return o, lse


def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, scale: float, rung: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return _empty(q)


def _backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    mask: str,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    given = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "do": do}
    gradients = {
        f"d{name}": torch.empty_like(x, memory_format=torch.contiguous_format)
        for name, x in zip("qkv", (q, k, v), strict=True)
    }
    chosen = Chosen(backward_rung(_wanted(q, k, mask)), DTYPES[q.dtype], mask, scale)
    run_kernel(chosen, {name: x.contiguous() for name, x in given.items()}, gradients)
    return gradients["dq"], gradients["dk"], gradients["dv"]


def _backward_fake(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    mask: str,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Keep what the backward pass needs."""
    q, k, v, mask, scale, _ = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mask, ctx.scale = mask, scale
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, do: torch.Tensor | None, dlse: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    if dlse is not None:
        raise UsageError("LSE of weft.torch.sdpa has no gradient: use lse.detach(), or PyTorch's own attention")
    if do is None:
        return (None,) * 6
    return (*_SDPA_BACKWARD(*ctx.saved_tensors, do, ctx.mask, ctx.scale), None, None, None)


def _fp8_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, scale: float, encoding: str, rung: str
) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = choose_rung(_wanted(q, k, mask, encoding), rung)
    o, lse = _empty(q)
    call = Chosen(chosen.name, DTYPES[q.dtype], mask, scale, encoding)
    takes = {line.name for line in kernel_for(call, "sm_89").arrays}
    tensors = {"q": q, "k": k, "v": v}
    if "q_code" in takes:
        tensors = {name: coded for key, x in tensors.items() for name, coded in _quantised(key, x, encoding).items()}
    run_kernel(call, {name: x.contiguous() for name, x in tensors.items()}, {"o": o, "lse": lse})
    return o, lse


def _fp8_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, scale: float, encoding: str, rung: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return _empty(q)


def _empty(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    b, heads, length, d = q.shape
    return q.new_empty((b, heads, length, d)), q.new_empty((b, heads, length), dtype=torch.float32)


def _wanted(q: torch.Tensor, k: torch.Tensor, mask: str, encoding: str = "") -> Wanted:
    group = q.size(1) // k.size(1)
    return Wanted(DTYPES[q.dtype], mask, q.size(3), q.size(2), k.size(2), group, encoding)


def _quantised(name: str, x: torch.Tensor, encoding: str) -> dict[str, torch.Tensor]:
    """Return codes and scales of Weft's quantiser, which runs on the CPU wherever the tensor is."""
    coded = QUANTISERS[encoding].encode(x.to(torch.float32).cpu().numpy())
    codes = torch.from_numpy(np.ascontiguousarray(coded.codes))
    scale = torch.from_numpy(np.ascontiguousarray(coded.scale))
    return {f"{name}_code": codes.to(x.device), f"{name}_scale": scale.to(x.device)}


def choose_rung(wanted: Wanted, name: str = "") -> Rung:
    """Return the named rung, or the highest of the ladder that supports the call; raises with all reasons otherwise."""
    if name:
        if name not in RUNGS:
            raise UsageError(f"rung {name!r}{did_you_mean(name, RUNGS)}: the ladder has {', '.join(RUNGS)}")
        why = why_not(RUNGS[name], wanted)
        if why:
            raise UsageError(f"rung {name} does not support this call: {why}")
        return RUNGS[name]
    reasons = []
    for rung in reversed(list(RUNGS.values())):
        why = why_not(rung, wanted) or _must_be_named(rung)
        if not why:
            return rung
        reasons.append(f"{rung.name}: {why}")
    raise UsageError(f"no rung of the ladder supports this call. {'; '.join(reasons)}")


def backward_rung(wanted: Wanted) -> str:
    """Return the rung that computes the gradients of a call."""
    return next((name for name in BACKWARD if not _lacks(RUNGS[name], wanted)), BACKWARD[-1])


def _must_be_named(rung: Rung) -> str:
    """Return why a rung is not chosen where the caller names none; empty if it is."""
    if rung.gpu:
        return f"rungs for one GPU ({rung.gpu}) must be named"
    return "" if rung.language == "CUDA" else "rungs of other compilers must be named"


def why_not(rung: Rung, wanted: Wanted) -> str:
    """Return the first reason why the rung does not support the call; empty if it does."""
    served = ENCODED if wanted.encoding else ("sdpa",)
    if rung.task not in served:
        return f"it computes {rung.task}, not {served[0]}"
    encodings = (SELF_QUANTISED,) if rung.task == "quantised_sdpa" else rung.encodings
    if wanted.encoding and wanted.encoding not in encodings:
        return f"its codes are {' or '.join(encodings)}, not {wanted.encoding}"
    return _lacks(rung, wanted)


def _lacks(rung: Rung, wanted: Wanted) -> str:
    """Return the type, mask or size of the call that the rung does not take; empty if it takes all."""
    dtypes = rung.outputs if rung.task == "fp8_sdpa" else rung.dtypes
    if wanted.dtype not in dtypes:
        return f"it takes {' or '.join(dtypes)}, not {wanted.dtype}"
    if wanted.mask not in rung.masks:
        return f"it has the masks {', '.join(rung.masks)}, not {wanted.mask}"
    if rung.largest_d is not None and wanted.d > rung.largest_d:
        return f"its largest head dimension is {rung.largest_d}, not {wanted.d}"
    if wanted.d % rung.multiple_d:
        return f"its head dimensions are multiples of {rung.multiple_d}, {wanted.d} is not"
    if wanted.group > 1 and not rung.gqa:
        return "it does not support GQA (several query heads per key head)"
    if not rung.ragged and (wanted.sq % TILE or wanted.skv % TILE):
        return f"it takes only sequences that are a multiple of {TILE}"
    return ""


_SDPA: Any = torch.library.custom_op("weft::sdpa", _forward, mutates_args=())
_SDPA.register_fake(_fake)
_SDPA.register_autograd(_gradients, setup_context=_keep)
_SDPA_BACKWARD: Any = torch.library.custom_op("weft::sdpa_backward", _backward, mutates_args=())
_SDPA_BACKWARD.register_fake(_backward_fake)
_FP8_SDPA: Any = torch.library.custom_op("weft::fp8_sdpa", _fp8_forward, mutates_args=())
_FP8_SDPA.register_fake(_fp8_fake)
