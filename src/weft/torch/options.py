"""The options of the functions, checked: what no kernel supports raises an error, nothing is ignored."""

import math
from typing import Any

import torch

from weft.core.errors import UsageError

ALIGNMENTS = ("top_left", "bottom_right")
MOST_KEYS = 1 << 30
"""The largest side of a window: sums with positions stay within 32 bits."""
LEAST_CAP, MOST_CAP = 1e-30, 1e30
"""Soft caps in this range are neither 0 nor infinite in float32."""
_ONLY_SDPA = (
    "is supported by weft.torch.sdpa only, not for codes, packed sequences or pages: call sdpa, one sequence at a time"
)
_REFUSED = {
    "attn_mask": "attn_mask is not supported: the kernels have only causal masks and windows (is_causal, window)",
    "dropout_p": "dropout_p is not supported: the kernels compute no dropout; apply it in the caller",
    "window": f"window {_ONLY_SDPA}",
    "soft_cap": f"soft_cap {_ONLY_SDPA}",
    "sinks": f"sinks {_ONLY_SDPA}",
    "enable_gqa": "enable_gqa is not an option here: the heads of q may be a multiple of those of k; leave it out",
}


class ForwardOnly(UsageError):
    """These kernels have no backward pass."""


def mask_of(is_causal: bool, causal_align: str, unknown: dict[str, Any]) -> str:
    """Return the mask's name; raises for options that the function does not have."""
    for name in unknown:
        raise UsageError(_REFUSED.get(name, f"unknown option {name!r}"))
    if causal_align not in ALIGNMENTS:
        raise UsageError(f"causal_align {causal_align!r}: use 'top_left' (PyTorch) or 'bottom_right' (FlashAttention)")
    return causal_align if is_causal else "none"


def scale_of(scale: float | None, d: int) -> float:
    """Return the factor of the scores."""
    return 1.0 / math.sqrt(d) if scale is None else float(scale)


def window_of(
    window: tuple[int | None, int | None] | None, mask: str, *, known_diagonal: bool
) -> tuple[int | None, int | None]:
    """Return how many keys before and after the diagonal a query sees; None: all.

    Without a causal mask the diagonal is key = query + SKV - SQ. `known_diagonal`: the caller has said so, or both
    corners are on it.
    """
    if window is None:
        return None, None
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise UsageError(
            f"window {window!r}: give (left, right), the keys before and after the diagonal; None: no limit"
        )
    left, right = window
    if any(side is not None and not (isinstance(side, int) and 0 <= side <= MOST_KEYS) for side in window):
        raise UsageError(f"window {window!r}: each side is a number of keys from 0 to 2^30, or None for no limit")
    if mask != "none":
        if right not in (None, 0):
            raise UsageError(
                f"window {window!r}: with is_causal no key after the diagonal is seen; "
                f"use ({left}, 0), or is_causal=False"
            )
        return left, None
    if not known_diagonal and (left, right) != (None, None):
        raise UsageError(
            f"window {window!r}: q and k have different lengths, and a window without a causal mask lies around "
            "key = query + SKV - SQ. Pass causal_align='bottom_right' for it"
        )
    return left, right


def cap_of(soft_cap: float | None) -> float | None:
    """Return the soft cap of the scores; None: no cap."""
    if soft_cap is None:
        return None
    if not isinstance(soft_cap, int | float) or not LEAST_CAP <= soft_cap <= MOST_CAP:
        raise UsageError(f"soft_cap {soft_cap!r}: give a number from {LEAST_CAP} to {MOST_CAP}, or None for no cap")
    return float(soft_cap)


def require_no_gradient(what: str, advice: str, *tensors: torch.Tensor | None) -> None:
    """Refuse tensors that require a gradient where there is no backward pass."""
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors):
        raise ForwardOnly(f"{what} is forward only. Call it under torch.no_grad(), or detach its tensors; {advice}")
