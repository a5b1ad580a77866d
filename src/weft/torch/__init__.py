"""Attention kernels of the ladder as PyTorch functions; `sdpa` has gradients.

    from weft.torch import sdpa, fp8_sdpa

CPU tensors run on the virtual GPU, CUDA tensors on the GPU they are on. Nothing else in Weft imports torch.
"""

from .functions import ForwardOnly, fp8_sdpa, sdpa

__all__ = ["ForwardOnly", "fp8_sdpa", "sdpa"]
