"""Small Triton kernels, one per form of argument or launch."""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl


class Pointer:
    """All that Triton asks of a tensor: a type and an address."""

    def __init__(self, address: int) -> None:
        self.dtype, self._address = torch.float32, address

    def data_ptr(self) -> int:
        return self._address


@triton.jit
def scalars(out_ptr, a, b, c, flag, wide, half: tl.float16, brain: tl.bfloat16, double: tl.float64):
    """out = the scalar arguments, as float64."""
    tl.store(out_ptr + 0, a.to(tl.float64))
    tl.store(out_ptr + 1, b + 0.0)  # 1 is specialised to a constant
    tl.store(out_ptr + 2, c.to(tl.float64))
    tl.store(out_ptr + 3, flag.to(tl.float64))
    tl.store(out_ptr + 4, wide.to(tl.float64))
    tl.store(out_ptr + 5, half.to(tl.float64))
    tl.store(out_ptr + 6, brain.to(tl.float64))
    tl.store(out_ptr + 7, double)


@triton.jit
def maybe_bias(x_ptr, bias_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + bias, or x where there is no bias."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + i, mask=i < n)
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def add_pair(pair, out_ptr, sizes, BLOCK: tl.constexpr):
    """out = pair[0] + pair[1]; sizes = (n, (step, constant))."""
    i = tl.arange(0, BLOCK)
    inside = i < sizes[0]
    x = tl.load(pair[0] + i * sizes[1][0], mask=inside)
    y = tl.load(pair[1] + i, mask=inside)
    tl.store(out_ptr + i, x + y, mask=inside)


@triton.jit
def copy_2d(x_ptr, out_ptr, stride_m, stride_n, M, N, BLOCK: tl.constexpr):
    """out (M, N) = x of any strides."""
    m = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + m * stride_m + i * stride_n, mask=i < N)
    tl.store(out_ptr + m * N + i, x, mask=i < N)


@triton.jit
def copy_tiles(source, target, BLOCK: tl.constexpr):
    """target = 2 · source through tensor descriptors made on the host."""
    m, n = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    target.store([m, n], source.load([m, n]) * 2)


@triton.jit
def bits_of(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x's bits plus one, as bytes."""
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def double_up(x_ptr, n, BLOCK: tl.constexpr):
    """x = 2 · x in place."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def checked(x_ptr, n, BLOCK: tl.constexpr):
    """Prints its input and asserts that it is positive."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1)
    tl.device_assert(x > 0, "not positive")
    tl.device_print("sum", tl.sum(x, axis=0))


@triton.jit
def follow(address, out_ptr, BLOCK: tl.constexpr):
    """out = the value at an address that is passed as a number."""
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(address.to(tl.pointer_type(tl.float32)) + i))


@triton.jit
def convert(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x in the type of out."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    tl.store(out_ptr + i, x.to(out_ptr.dtype.element_ty), mask=i < n)
