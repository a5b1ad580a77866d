"""Kernels whose programs several CTAs execute together."""

import triton
import triton.language as tl


@triton.jit
def total(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N))))
