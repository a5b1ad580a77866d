"""Triton kernels for launches through Triton's front end: pointers in a table, pages, libdevice, inline assembly."""

# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language.extra import libdevice

from tests.kernels.triton_kernels import matmul

LOG2_E = tl.constexpr(1.4426950408889634)


def _configs():
    tiles = [(64, 64, 32, 4, 3), (32, 64, 32, 2, 2), (64, 32, 32, 2, 3), (32, 32, 32, 2, 2)]
    for m, n, k, warps, stages in tiles:
        blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 4}
        yield triton.Config(blocks, num_warps=warps, num_stages=stages)


tuned_matmul = triton.autotune(configs=list(_configs()), key=["M", "N", "K"])(matmul)
"""C = A · B in groups of tile rows, the tiles chosen by Triton's autotuner."""


@triton.jit
def rms_norm(x_ptr, weight_ptr, y_ptr, stride, N, epsilon, BLOCK: tl.constexpr):
    """y = x · weight / √(mean x² + ε) per row; rows of x may have a stride."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < N
    x = tl.load(x_ptr + row * stride + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    y = x * tl.rsqrt(tl.sum(x * x, axis=0) / N + epsilon) * weight
    tl.store(y_ptr + row * N + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def arc_sine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """y = asin(x) by CUDA's libdevice."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    tl.store(y_ptr + offsets, libdevice.asin(x), mask=inside)


@triton.jit
def table_matmul(
    a_table,
    b_table,
    c_table,
    sizes_ptr,
    groups,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C[g] = A[g] · B[g] where tables hold the addresses and `sizes` M, N, K of each: programs loop over all tiles."""
    tile = tl.program_id(0)
    first = 0
    for g in range(groups):
        M = tl.load(sizes_ptr + 3 * g)
        N = tl.load(sizes_ptr + 3 * g + 1)
        K = tl.load(sizes_ptr + 3 * g + 2)
        tiles_n = tl.cdiv(N, BLOCK_N)
        tiles = tl.cdiv(M, BLOCK_M) * tiles_n
        while tile >= first and tile < first + tiles:
            a_ptr = tl.load(a_table + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_table + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_table + g).to(tl.pointer_type(tl.float16))
            rows = (tile - first) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (tile - first) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for start in range(0, K, BLOCK_K):
                depth = start + tl.arange(0, BLOCK_K)
                in_a = (rows[:, None] < M) & (depth[None, :] < K)
                in_b = (depth[:, None] < K) & (columns[None, :] < N)
                a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=in_a, other=0.0)
                b = tl.load(b_ptr + depth[:, None] * N + columns[None, :], mask=in_b, other=0.0)
                accumulator = tl.dot(a, b, accumulator)
            inside = (rows[:, None] < M) & (columns[None, :] < N)
            tl.store(c_ptr + rows[:, None] * N + columns[None, :], accumulator.to(tl.float16), mask=inside)
            tile += tl.num_programs(0)
        first += tiles


@triton.jit
def paged_decode(
    q_ptr,
    k_ptr,
    v_ptr,
    pages_ptr,
    lengths_ptr,
    o_ptr,
    scale,
    MOST_PAGES,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
):
    """One query per sequence over keys and values in pages (page, slot, kv head, d); GROUP heads share one."""
    sequence, kv_head = tl.program_id(0), tl.program_id(1)
    heads, dims, slots = tl.arange(0, GROUP), tl.arange(0, D), tl.arange(0, PAGE)
    q_at = (sequence * HEADS * GROUP + kv_head * GROUP + heads)[:, None] * D + dims[None, :]
    q = tl.load(q_ptr + q_at).to(tl.float32)
    length = tl.load(lengths_ptr + sequence)
    m = tl.full((GROUP,), -float("inf"), dtype=tl.float32)
    l = tl.zeros((GROUP,), dtype=tl.float32)
    acc = tl.zeros((GROUP, D), dtype=tl.float32)
    for number in range(0, tl.cdiv(length, PAGE)):
        page = tl.load(pages_ptr + sequence * MOST_PAGES + number)
        inside = number * PAGE + slots < length
        at = ((page * PAGE + slots) * HEADS + kv_head)[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + at, mask=inside[:, None], other=0.0).to(tl.float32)
        s = tl.sum(q[:, None, :] * k[None, :, :], axis=2) * (scale * LOG2_E)
        s = tl.where(inside[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.math.exp2(s - m_new[:, None])
        rescale = tl.math.exp2(m - m_new)
        v = tl.load(v_ptr + at, mask=inside[:, None], other=0.0).to(tl.float32)
        acc = acc * rescale[:, None] + tl.sum(p[:, :, None] * v[None, :, :], axis=1)
        l = l * rescale + tl.sum(p, axis=1)
        m = m_new
    tl.store(o_ptr + q_at, (acc / l[:, None]).to(o_ptr.dtype.element_ty))


@triton.jit
def packed_matmul(
    x_ptr,
    packed_ptr,
    scale_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out = x · (scale · w): packed (N, K / 4) holds four signed bytes of w each, unpacked by `prmt`."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * K + depth[None, :], mask=rows[:, None] < M, other=0.0)
        at = columns[None, :] * (K // 4) + depth[:, None] // 4
        words = tl.load(packed_ptr + at, mask=columns[None, :] < N, other=0)
        # Byte k of the word becomes the lowest byte, its sign fills the three above.
        w = tl.inline_asm_elementwise(
            asm="""
            {
                .reg .b32 choose;
                mad.lo.s32 choose, $2, 0x1111, 0x8880;
                prmt.b32 $0, $1, $1, choose;
            }
            """,
            constraints="=r,r,r",
            args=[words, (depth[:, None] % 4) + tl.zeros_like(words)],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
        accumulator = tl.dot(x, w.to(x.dtype), accumulator)
    scale = tl.load(scale_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    out = (accumulator * scale[None, :]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], out, mask=inside)


@triton.jit
def scatter_sums(x_ptr, bucket_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    """sums[bucket[i]] += x[i] by atomics."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    bucket = tl.load(bucket_ptr + i, mask=inside, other=0)
    tl.atomic_add(sums_ptr + bucket, tl.load(x_ptr + i, mask=inside, other=0.0), mask=inside, sem="relaxed")
