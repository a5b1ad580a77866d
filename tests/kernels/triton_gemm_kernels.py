"""Matrix products in Triton: strided, fused with bias and GELU, split over K, grouped, and with 4-bit weights."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def strided_matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """C = A · B with any strides; int8 accumulates in int32, everything else in fp32."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b_ptr + depth[:, None] * stride_bk + columns[None, :] * stride_bn
    if a_ptr.dtype.element_ty == tl.int8:
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    else:
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_tile, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_tile, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision=PRECISION, out_dtype=accumulator.dtype)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    c_tile = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_tile, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def linear_gelu(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """out = GELU(x · weightᵀ + bias) with the error function; x (M, K), weight (N, K) and out by tensor descriptors."""
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    x_tiles = tl.make_tensor_descriptor(x_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    weight_tiles = tl.make_tensor_descriptor(weight_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    out_tiles = tl.make_tensor_descriptor(out_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        accumulator = tl.dot(x_tiles.load([m, k]), weight_tiles.load([n, k]).T, accumulator)
    columns = n + tl.arange(0, BLOCK_N)
    accumulator += tl.load(bias_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    out = 0.5 * accumulator * (1.0 + tl.math.erf(accumulator * 0.7071067811865476))
    out_tiles.store([m, n], out.to(out_ptr.dtype.element_ty))


@triton.jit
def split_k_matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """C += A · B; program (tile, split) adds its part of K to fp32 C by atomics."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(tl.program_id(1) * BLOCK_K, K, BLOCK_K * SPLITS):
        depth = start + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (depth[None, :] < K)
        b_mask = (depth[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], accumulator, mask=inside, sem="relaxed")


@triton.jit
def grouped_matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    offsets_ptr,
    groups,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Rows offsets[g] … offsets[g + 1] of A times the matrix B[g]; a fixed number of programs walks all tiles."""
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_tile = 0
    for g in range(groups):
        begin, end = tl.load(offsets_ptr + g), tl.load(offsets_ptr + g + 1)
        tiles = tl.cdiv(end - begin, BLOCK_M) * tiles_n
        while tile >= first_tile and tile < first_tile + tiles:
            rows = begin + (tile - first_tile) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (tile - first_tile) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            a_tile = a_ptr + rows[:, None] * K + depth[None, :]
            b_tile = b_ptr + g * K * N + depth[:, None] * N + columns[None, :]
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for k in range(0, K, BLOCK_K):
                a = tl.load(a_tile, mask=(rows[:, None] < end) & (depth[None, :] < K - k), other=0.0)
                b = tl.load(b_tile, mask=(depth[:, None] < K - k) & (columns[None, :] < N), other=0.0)
                accumulator = tl.dot(a, b, accumulator)
                a_tile += BLOCK_K
                b_tile += BLOCK_K * N
            inside = (rows[:, None] < end) & (columns[None, :] < N)
            c = accumulator.to(c_ptr.dtype.element_ty)
            tl.store(c_ptr + rows[:, None] * N + columns[None, :], c, mask=inside)
            tile += tl.num_programs(0)
        first_tile += tiles


@triton.jit
def int4_weight_matmul(
    x_ptr,
    packed_ptr,
    scales_ptr,
    out_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr,
):
    """out = x · (scales · w), w in -8 … 7: packed (K / 8, N) int32 holds eight k each, scales (K / GROUP, N)."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for group in range(0, K // GROUP):
        depth = group * GROUP + tl.arange(0, GROUP)
        x = tl.load(x_ptr + rows[:, None] * K + depth[None, :], mask=rows[:, None] < M, other=0.0)
        packed = tl.load(packed_ptr + depth[:, None] // 8 * N + columns[None, :], mask=columns[None, :] < N, other=0)
        scale = tl.load(scales_ptr + group * N + columns, mask=columns < N, other=0.0)
        w = ((packed >> (depth[:, None] % 8 * 4)) & 0xF) - 8
        accumulator += tl.dot(x, w.to(x.dtype)) * scale.to(tl.float32)[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], accumulator.to(out_ptr.dtype.element_ty), mask=inside)
