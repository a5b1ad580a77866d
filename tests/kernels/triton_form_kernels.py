"""Triton kernels chosen for their PTX: conversions, layouts, 16-bit atomics, printing, block scales."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def conversions(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Row r of out (9, n) is x after conversion to another type and back."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    tl.store(out_ptr + i, x.to(tl.float8e4nv).to(tl.float32), mask=inside)
    tl.store(out_ptr + n + i, x.to(tl.float8e5).to(tl.float32), mask=inside)
    tl.store(out_ptr + 2 * n + i, x.to(tl.bfloat16).to(tl.float32), mask=inside)
    tl.store(
        out_ptr + 3 * n + i, x.to(tl.float32).to(tl.float16, fp_downcast_rounding="rtz").to(tl.float32), mask=inside
    )
    tl.store(out_ptr + 4 * n + i, x.to(tl.float8e4nv).to(tl.bfloat16).to(tl.float32), mask=inside)
    tl.store(out_ptr + 5 * n + i, x.to(tl.float16).to(tl.float8e5).to(tl.float16).to(tl.float32), mask=inside)
    tl.store(out_ptr + 6 * n + i, x.to(tl.int16).to(tl.float32), mask=inside)
    tl.store(out_ptr + 7 * n + i, x.to(tl.int64).to(tl.float64).to(tl.float32), mask=inside)
    tl.store(out_ptr + 8 * n + i, (x > 1.0).to(tl.float32), mask=inside)


@triton.jit
def rearrange(x_ptr, y_ptr, out_ptr, parity_ptr, N: tl.constexpr):
    """out (2, 8, N / 8): flipped x, then y, both column by column; on the way they are interleaved and split."""
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    a, b = tl.split(tl.reshape(tl.interleave(x, y), (N, 2)))
    columns = tl.join(tl.trans(tl.reshape(tl.flip(a), (N // 8, 8))), tl.trans(tl.reshape(b, (N // 8, 8))))
    tl.store(out_ptr + tl.arange(0, 2 * N), tl.ravel(tl.permute(columns, (2, 0, 1))))
    tl.store(parity_ptr, tl.xor_sum(x.to(tl.int32), 0))


@triton.jit
def bucket_sums(x_ptr, bucket_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    """sums[bucket[i]] += x[i] by atomics in the type of x, with an assertion and a line of print."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    bucket = tl.load(bucket_ptr + i, mask=inside, other=0)
    tl.device_assert((bucket >= 0) & (bucket < 8), "no such bucket", mask=inside)
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    tl.atomic_add(sums_ptr + bucket, x, mask=inside, sem="relaxed")
    if tl.program_id(0) == 0:
        tl.device_print("first bucket", tl.sum(tl.where(i == 0, bucket, 0), axis=0))


@triton.jit
def microscaled_matmul(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    """C = (a · 2^sa) · (b · 2^sb) on E4M3 with a scale for every 32 of K, as tl.dot_scaled has it; b is (N, K)."""
    m, n, k, group = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + n[None, :] * K + k[:, None])
    a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + group[None, :])
    b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + group[None, :])
    c = tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e4m3")
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)
