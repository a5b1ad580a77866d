"""Operators that CUDA's kernels compute in float32 and PyTorch's CPU kernels do not, or that have no CPU kernel.

For 16-bit tensors the CPU kernels of `_IN_FLOAT32` add up in 16 bits: the gradient of a layer norm's weight over
1024 rows is wrong by 26 units in the last place. CUDA's kernels add up in float32 and round once. Mean and deviation of
a layer norm, which its backward pass uses, are float32 on CUDA.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_IN_FLOAT32 = frozenset(
    f"aten::{name}"
    for name in ("native_layer_norm_backward", "native_group_norm_backward", "embedding_dense_backward", "prod")
)
_LAYER_NORM = "aten::native_layer_norm"
_SHORT = (torch.float16, torch.bfloat16)


def call(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call an operator on CPU tensors; where CUDA's kernel computes in float32, compute in float32 and round once."""
    schema = operator._schema
    given = [each for each in args if isinstance(each, torch.Tensor)]
    if schema.is_mutable or not any(each.dtype in _SHORT for each in given):
        return operator(*args, **kwargs)
    if schema.name == _LAYER_NORM:
        normed, *statistics = operator(*map(_widened, args), **kwargs)
        return normed.to(args[0].dtype), *statistics
    if schema.name not in _IN_FLOAT32:
        return operator(*args, **kwargs)
    like = operator(*(each.to("meta") if isinstance(each, torch.Tensor) else each for each in args), **kwargs)
    return _rounded(operator(*map(_widened, args), **kwargs), like)


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _SHORT else value


def _rounded(value: Any, like: Any) -> Any:
    """Return the results with the types of others."""
    if isinstance(value, list | tuple):
        return type(value)([_rounded(each, other) for each, other in zip(value, like, strict=True)])
    return value.to(like.dtype) if isinstance(value, torch.Tensor) else value


def products() -> dict[str, Callable[..., Any]]:
    """Return kernels of the products with a wider result (`torch.mm(…, out_dtype=…)`), which only CUDA has."""
    found = {}
    for name in ("mm", "bmm", "addmm", "baddbmm"):
        found[f"{name}.dtype"] = found[f"{name}.dtype_out"] = _product(getattr(torch.ops.aten, name).default)
    return found


def _product(operator: Any) -> Callable[..., Any]:
    def kernel(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        *factors, kind = args
        given = factors[-1].dtype
        if kind is not given and not (kind is torch.float32 and given in _SHORT):
            raise RuntimeError(f"out_dtype must be {given} or, for 16-bit inputs, torch.float32, not {kind}")
        made = operator(*(each.to(kind) for each in factors), **kwargs)
        return made if out is None else out.copy_(made)

    return kernel
