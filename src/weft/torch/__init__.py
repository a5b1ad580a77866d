"""Attention kernels of the ladder as PyTorch functions; `sdpa` has gradients.

    from weft.torch import fp8_sdpa, paged_decode, sdpa, sdpa_varlen

CPU tensors run on the virtual GPU, CUDA tensors on the GPU they are on. Nothing else in Weft imports torch.
"""

from .functions import fp8_sdpa, sdpa
from .lengths import paged_decode, sdpa_varlen
from .options import ForwardOnly

__all__ = ["ForwardOnly", "fp8_sdpa", "paged_decode", "sdpa", "sdpa_varlen"]
