"""Kernels that update memory in place; WRONG uses a value that another warp may already have changed."""

import triton
import triton.language as tl


@triton.jit
def increment(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    x = tl.load(p_ptr)
    tl.store(p_ptr, x + 1)
    if WRONG:
        tl.store(seen_ptr + tl.arange(0, BLOCK), x)


@triton.jit
def scale(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(p_ptr + i, mask=i < BLOCK - 2, other=0.0)
    tl.store(p_ptr + i, x * 2, mask=i < BLOCK - 2)
    if WRONG:
        tl.store(seen_ptr + i[:, None] * 4 + tl.arange(0, 4)[None, :], x[:, None] + tl.zeros((BLOCK, 4), tl.float32))


@triton.jit
def normalise(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(p_ptr + i)
    total = tl.sum(x, 0)
    tl.store(p_ptr + i, x / total)
    if WRONG:
        tl.store(seen_ptr + tl.arange(0, 128), total)


@triton.jit
def follow(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    x = tl.load(p_ptr)
    y = x.to(tl.int32) * 0 + 1
    if WRONG:
        y = tl.load(seen_ptr + x.to(tl.int32)).to(tl.int32)
    tl.store(p_ptr, x + y)


@triton.jit
def branch(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    x = tl.load(p_ptr)
    tl.store(p_ptr, x + 1)
    if WRONG:  # noqa: SIM102  (a constant of the compiler, and a value)
        if x > 0:
            tl.store(seen_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))


@triton.jit
def cross_entropy(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """Replaces logits by their softmax, in two passes, and the last by its share of the loss.

    tl.log branches on the sum; the index of the maximum starts as the same register as the loop's.
    """
    m, total, best = float("-inf"), 0.0, 0
    n = tl.load(seen_ptr).to(tl.int32) + BLOCK
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(p_ptr + i, mask=i < n, other=float("-inf"))
        highest = tl.max(x)
        best = tl.where(highest > m, tl.min(tl.where(x == highest, i, n)), best)
        new = tl.maximum(m, highest)
        total = total * tl.exp(m - new) + tl.sum(tl.exp(x - new))
        m = new
    loss = m + tl.log(total)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(p_ptr + i, mask=i < n, other=float("-inf"))
        tl.store(p_ptr + i, tl.exp(x - loss), mask=i < n)
    if WRONG:
        tl.store(seen_ptr + tl.arange(0, 128), loss)
    else:
        tl.store(seen_ptr + 1, loss + best)


@triton.jit
def divergence(p_ptr, seen_ptr, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    """Replaces numbers by their logarithm, in a loop: the slow path of tl.log is behind the loop's code."""
    n = tl.load(seen_ptr).to(tl.int32) + BLOCK
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(p_ptr + i, mask=i < n, other=1.0)
        y = tl.log(x) + tl.max(x)
        tl.store(p_ptr + i, y, mask=i < n)
        if WRONG:
            tl.store(
                seen_ptr + i[:, None] * 4 + tl.arange(0, 4)[None, :], y[:, None] + tl.zeros((BLOCK, 4), tl.float32)
            )


@triton.jit
def add_atomically(p_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(p_ptr + i, tl.full((BLOCK,), 1.0, p_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def add_plainly(p_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(p_ptr + i, tl.load(p_ptr + i, mask=i < n) + 1.0, mask=i < n)
