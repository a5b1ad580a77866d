"""Triton kernels with one mistake each, and the same without it. Wrong lines end with `# wrong`."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def shift(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """out = x + 1. Mistake: the load has no mask."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if WRONG:
        x = tl.load(x_ptr + i)  # wrong
    else:
        x = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x + 1, mask=i < n)


@triton.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """out[0] = Σ x. Mistake: programs add without atomics."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0), axis=0)
    if WRONG:
        tl.store(out_ptr, tl.load(out_ptr) + part)  # wrong
    else:
        tl.atomic_add(out_ptr, part)


@triton.jit
def gather(x_ptr, index_ptr, out_ptr, n, rows, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """out = x[index], 0 where the index is none. Mistake: indices are not checked."""
    i = tl.arange(0, BLOCK)
    index = tl.load(index_ptr + i, mask=i < n, other=0)
    if WRONG:
        x = tl.load(x_ptr + index, mask=i < n)  # wrong
    else:
        x = tl.load(x_ptr + index, mask=(i < n) & (index >= 0) & (index < rows), other=0.0)
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def neighbours(x_ptr, out_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """out[i] = x[i ^ 32] through a scratch array. Mistake: no warp waits for the other warp's store."""
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + BLOCK + i, tl.load(x_ptr + i))
    if WRONG:
        tl.inline_asm_elementwise("bar.warp.sync 0xffffffff; mov.b32 $0, $1;", "=r,r", [i], tl.int32, False, 1)
    else:
        tl.inline_asm_elementwise("bar.sync 0; mov.b32 $0, $1;", "=r,r", [i], tl.int32, False, 1)
    tl.store(out_ptr + i, tl.load(out_ptr + BLOCK + (i ^ 32)))  # wrong


@triton.jit
def accumulate(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """out = x. Mistake: it adds to memory that was never written."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if WRONG:
        x += tl.load(out_ptr + i, mask=i < n)  # wrong
    tl.store(out_ptr + i, x, mask=i < n)
