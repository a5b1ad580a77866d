"""Triton kernels of the suite. Tensors are contiguous; only D must be a power of two."""

# A jitted function has no Python types: its arguments are typed by the signature it is compiled for.
# mypy: ignore-errors

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for i < n."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


@triton.jit
def row_softmax(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
    """Softmax of each row; a program walks rows with a grid stride and holds a whole row, cols <= BLOCK."""
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * cols + columns, mask=inside, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=0))
        result = numerator / tl.sum(numerator, axis=0)
        tl.store(out_ptr + row * cols + columns, result.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """C = A · B, row-major, accumulated in fp32. Programs run in groups of GROUP_M tile rows for L2 reuse."""
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = pid // (GROUP_M * tiles_n)
    first_m = group * GROUP_M
    group_rows = min(tiles_m - first_m, GROUP_M)
    tile_m = first_m + (pid % (GROUP_M * tiles_n)) % group_rows
    tile_n = (pid % (GROUP_M * tiles_n)) // group_rows

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows[:, None] * K + depth[None, :]
    b_tile = b_ptr + depth[:, None] * N + columns[None, :]

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_tile, mask=(rows[:, None] < M) & (depth[None, :] < K - k), other=0.0)
        b = tl.load(b_tile, mask=(depth[:, None] < K - k) & (columns[None, :] < N), other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * N
    c_tile = c_ptr + rows[:, None] * N + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_tile, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _attend(
    acc,
    l,
    m,
    q,
    k_head,
    v_head,
    queries,
    scale_log2,
    S,
    begin,
    end,
    D: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Online softmax over the keys [begin, end). MASKED tiles may pass S or, if CAUSAL, the diagonal."""
    dims = tl.arange(0, D)
    for start in range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        if MASKED:
            k = tl.load(k_head + dims[:, None] + keys[None, :] * D, mask=keys[None, :] < S, other=0.0)
        else:
            k = tl.load(k_head + dims[:, None] + keys[None, :] * D)
        s = tl.dot(q, k) * scale_log2
        if MASKED:
            visible = keys[None, :] < S
            if CAUSAL:
                visible = visible & (keys[None, :] <= queries[:, None])
            s = tl.where(visible, s, -float("inf"))
        # Key 0 is visible to every query and comes first, so m is finite from the first tile on.
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.math.exp2(s - m_new[:, None])
        rescale = tl.math.exp2(m - m_new)
        l = l * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None]
        if MASKED:
            v = tl.load(v_head + keys[:, None] * D + dims[None, :], mask=keys[:, None] < S, other=0.0)
        else:
            v = tl.load(v_head + keys[:, None] * D + dims[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m = m_new
    return acc, l, m


@triton.jit
def flash_attention(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    S,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """O = softmax(Q · Kᵀ · scale) · V and LSE over (B·H, S, D); grid (cdiv(S, BLOCK_M), B·H)."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    q_head = q_ptr + head * S * D
    k_head = k_ptr + head * S * D
    v_head = v_ptr + head * S * D
    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    in_rows = queries[:, None] < S

    q = tl.load(q_head + queries[:, None] * D + dims[None, :], mask=in_rows, other=0.0)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    l = tl.zeros((BLOCK_M,), dtype=tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    scale_log2 = scale * LOG2_E

    # Whole tiles first, without a mask; then the tiles on the diagonal or at the ragged end.
    last = S
    if CAUSAL:
        last = min(S, (tile + 1) * BLOCK_M)
        whole = min(tile * BLOCK_M, S) // BLOCK_N * BLOCK_N
    else:
        whole = S // BLOCK_N * BLOCK_N
    acc, l, m = _attend(acc, l, m, q, k_head, v_head, queries, scale_log2, S, 0, whole, D, BLOCK_N, False, CAUSAL)
    acc, l, m = _attend(acc, l, m, q, k_head, v_head, queries, scale_log2, S, whole, last, D, BLOCK_N, True, CAUSAL)

    tl.store(lse_ptr + head * S + queries, (m + tl.math.log2(l)) / LOG2_E, mask=queries < S)
    o = acc / l[:, None]
    o_tile = o_ptr + head * S * D + queries[:, None] * D + dims[None, :]
    tl.store(o_tile, o.to(o_ptr.dtype.element_ty), mask=in_rows)
