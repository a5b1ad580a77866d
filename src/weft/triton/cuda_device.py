"""Gives PyTorch the device cuda:0 while the virtual GPU represents it: tensors, operators, torch.cuda.

docs/decisions/0022-cuda-tensors-without-a-gpu.md explains why tensors have the device itself, and the alternatives.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from .accelerator import accelerated, single_threaded
from .cuda_memory import CUDA
from .cuda_operators import registered
from .inductor import Estimate, inductor
from .stand_ins import patched

CPU = torch.device("cpu")
PINNED = "_weft_pinned"
"""Attribute of host tensors that a GPU can read: kernels take them as they take CUDA tensors."""


class _Generator(torch.Generator):  # type: ignore[misc]
    """torch.Generator(device="cuda") returns a CPU generator: random numbers come from the CPU's kernels."""

    def __new__(cls, device: Any = CPU) -> Any:
        return super().__new__(cls, CPU if torch.device(device).type == "cuda" else device)


@contextmanager
def cuda_device(answers: Mapping[str, Any], estimate: Estimate) -> Iterator[None]:
    """Inside, `device="cuda"` is the virtual GPU, with `answers` as attributes of torch.cuda."""
    flash, efficient = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    with ExitStack() as stack:
        stack.enter_context(patched(torch._C, {"_cuda_getCurrentRawStream": lambda device: 0}))
        stack.enter_context(patched(torch.cuda, answers))
        stack.enter_context(patched(torch, {"Generator": _Generator}))
        stack.enter_context(patched(torch.Tensor, {"pin_memory": _pinned, "is_pinned": _is_pinned}))
        for owner in (torch.autograd, torch.autograd.graph):
            stack.enter_context(patched(owner, {"_engine_run_backward": _run_backward}))
        stack.enter_context(registered())
        stack.enter_context(accelerated())
        stack.enter_context(inductor(estimate))
        torch.backends.cuda.enable_flash_sdp(False)  # their kernels are CUDA's, not the CPU's
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        try:
            yield
        finally:
            torch.backends.cuda.enable_flash_sdp(flash)
            torch.backends.cuda.enable_mem_efficient_sdp(efficient)


_engine = torch.autograd.graph._engine_run_backward


def _run_backward(*args: Any, **kwargs: Any) -> Any:
    with single_threaded():
        return _engine(*args, **kwargs)


def _pinned(tensor: Any, device: Any = None) -> Any:
    if tensor.is_cuda:
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    copied = tensor.clone()
    setattr(copied, PINNED, True)
    return copied


def _is_pinned(tensor: Any, device: Any = None) -> bool:
    return bool(getattr(tensor, PINNED, False))


__all__ = ["CPU", "CUDA", "PINNED", "cuda_device"]
