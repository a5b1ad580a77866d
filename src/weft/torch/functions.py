"""`sdpa` and `fp8_sdpa`: PyTorch's scaled_dot_product_attention on kernels of the ladder. `sdpa` has gradients."""

from typing import Any

import numpy as np
import torch

from weft.attention.contract import DENSE, Contract
from weft.attention.quantise import QUANTISERS
from weft.core.errors import UsageError
from weft.kernels.ladder import ENCODINGS

from .choose import DTYPES, Wanted, backward_rung, choose_rung, compute
from .dense_call import DenseCall, empty_outputs
from .kernel_call import Chosen, run_kernel
from .options import cap_of, mask_of, require_no_gradient, scale_of, window_of


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
    window: tuple[int | None, int | None] | None = None,
    soft_cap: float | None = None,
    sinks: torch.Tensor | None = None,
    rung: str | None = None,
    **unknown: Any,
) -> Any:
    """Return softmax(q·kᵀ·scale)·v as torch.nn.functional.scaled_dot_product_attention does; with LSE on request.

    f16, bf16 or f32; (…, heads, length, dimension). A query that sees no key (`bottom_right` with more queries than
    keys) gives 0 and LSE -inf. `rung` names a kernel of the ladder; the default is the highest that supports the call.
    Gradients of O flow to q, k and v through the rung `backward_mma`, or `backward` where that does not support the
    call; LSE has none.

    `window` is (left, right): the keys before and after the diagonal that a query sees; None: no limit. With
    `soft_cap` scores become cap·tanh(score / cap). `sinks` (heads,) are logits that count in the sum of each row,
    without a value. These three have no gradients.
    """
    mask = mask_of(is_causal, causal_align, unknown)
    call = DenseCall(q, k, v, enable_gqa)
    # Without a window the lengths are not compared: torch.compile would make a graph for equal and for other ones.
    known = window is None or causal_align == "bottom_right" or q.size(-2) == k.size(-2)
    left, right = window_of(window, mask, known_diagonal=known)
    cap, factor, logits = cap_of(soft_cap), scale_of(scale, q.size(-1)), call.sinks(sinks)
    if (left, right, cap, logits) == (None, None, None, None):
        o, lse = _SDPA(call.q, call.k, call.v, mask, factor, rung or "")
    else:
        what = "weft.torch.sdpa with window, soft_cap or sinks"
        require_no_gradient(what, "without these options it has gradients", q, k, v, sinks)
        o, lse = _SDPA_VARIANT(call.q, call.k, call.v, logits, mask, factor, rung or "", left, right, cap)
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
    mask = mask_of(is_causal, causal_align, unknown)
    if encoding not in ENCODINGS:
        raise UsageError(f"encoding {encoding!r}: use one of {', '.join(ENCODINGS)}")
    require_no_gradient("weft.torch.fp8_sdpa", "use weft.torch.sdpa for training", q, k, v)
    call = DenseCall(q, k, v, enable_gqa)
    o, lse = _FP8_SDPA(call.q, call.k, call.v, mask, scale_of(scale, q.size(-1)), encoding, rung or "")
    return call.result(o, lse, return_lse)


def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, scale: float, rung: str
) -> tuple[torch.Tensor, torch.Tensor]:
    return compute(_wanted(q, k, mask), {"q": q, "k": k, "v": v}, empty_outputs(q), scale, rung)


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


def _variant(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None,
    mask: str,
    scale: float,
    rung: str,
    left: int | None,
    right: int | None,
    soft_cap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    contract = Contract(left=left, right=right, soft_cap=soft_cap, sinks=sinks is not None)
    tensors = {"q": q, "k": k, "v": v} | ({} if sinks is None else {"sinks": sinks})
    return compute(_wanted(q, k, mask, contract=contract), tensors, empty_outputs(q), scale, rung)


def _fp8_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: str, scale: float, encoding: str, rung: str
) -> tuple[torch.Tensor, torch.Tensor]:
    wanted = _wanted(q, k, mask, encoding)
    chosen = choose_rung(wanted, rung)
    tensors = {"q": q, "k": k, "v": v}
    if chosen.task == "fp8_sdpa":
        tensors = {name: coded for key, x in tensors.items() for name, coded in _quantised(key, x, encoding).items()}
    return compute(wanted, tensors, empty_outputs(q), scale, chosen.name)


def _wanted(q: torch.Tensor, k: torch.Tensor, mask: str, encoding: str = "", contract: Contract = DENSE) -> Wanted:
    group = q.size(1) // k.size(1)
    return Wanted(DTYPES[q.dtype], mask, q.size(3), q.size(2), k.size(2), group, encoding, contract)


def _quantised(name: str, x: torch.Tensor, encoding: str) -> dict[str, torch.Tensor]:
    """Return codes and scales of Weft's quantiser, which runs on the CPU wherever the tensor is."""
    coded = QUANTISERS[encoding].encode(x.to(torch.float32).cpu().numpy())
    codes = torch.from_numpy(np.ascontiguousarray(coded.codes))
    scale = torch.from_numpy(np.ascontiguousarray(coded.scale))
    return {f"{name}_code": codes.to(x.device), f"{name}_scale": scale.to(x.device)}


_SDPA: Any = torch.library.custom_op("weft::sdpa", _forward, mutates_args=())
_SDPA.register_fake(empty_outputs)
_SDPA.register_autograd(_gradients, setup_context=_keep)
_SDPA_BACKWARD: Any = torch.library.custom_op("weft::sdpa_backward", _backward, mutates_args=())
_SDPA_BACKWARD.register_fake(_backward_fake)
_FP8_SDPA: Any = torch.library.custom_op("weft::fp8_sdpa", _fp8_forward, mutates_args=())
_FP8_SDPA.register_fake(empty_outputs)
_SDPA_VARIANT: Any = torch.library.custom_op("weft::sdpa_variant", _variant, mutates_args=())
_SDPA_VARIANT.register_fake(empty_outputs)
