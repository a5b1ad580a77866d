# Fused attention of sequences of different lengths, packed behind each other, in Triton.
#
#     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
#
# Idea      The tiles and the online softmax of `fa_triton`. Rows cu_seqlens_q[b] to cu_seqlens_q[b + 1] of q and o, and
#           rows cu_seqlens_k[b] to cu_seqlens_k[b + 1] of k and v, are sequence b: nothing is padded. A program owns
#           BLOCK_M queries of one sequence and one head. It finds its sequence by counting the tiles of those before;
#           cutting the queries into B sequences adds at most B partial tiles, so the grid has B programs more.
# History   The layout of FlashAttention's flash_attn_varlen_func, (total, heads, D): rows of a head are HQ · D apart.
# Levers    BLOCK_M and BLOCK_N; WARPS and STAGES are Triton's num_warps and num_stages.
# Supports  ELEMENT half, __nv_bfloat16; sequences of any length from 0; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped
#           queries); CAUSAL 0 none, 1 top_left (query i of a sequence sees its keys ≤ i), 2 bottom_right (its keys
#           ≤ i + keys - queries). A query that sees no key gets O = 0 and LSE = -inf.
#
# weft: sizes   ENDS=5 HQ=2 HKV=1 TOTAL_Q=4 TOTAL_K=4 D=64
# weft: define  ELEMENT = "half"
# weft: define  CAUSAL = 0
# weft: define  BLOCK_M = 64
# weft: define  BLOCK_N = 32
# weft: define  WARPS = 4
# weft: define  STAGES = 2
# weft: in      q    : ELEMENT[TOTAL_Q, HQ, D] = normal
# weft: in      k, v : ELEMENT[TOTAL_K, HKV, D] = normal
# weft: in      cu_seqlens_q, cu_seqlens_k : i32[ENDS] = arange
# weft: out     o    : ELEMENT[TOTAL_Q, HQ, D]
# weft: out     lse  : f32[HQ, TOTAL_Q]
# weft: scalar  scale : f32 = 1 / sqrt(D)
# weft: scalar  PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: launch  varlen_triton<num_warps={WARPS}, num_stages={STAGES}>(
# weft:           q, k, v, cu_seqlens_q, cu_seqlens_k, o, lse, HKV, TOTAL_Q, ENDS, scale)
# weft:         grid(TOTAL_Q // BLOCK_M + ENDS - 1, HQ) block(32 * WARPS)
"""Fused attention of packed sequences in Triton: the rung `varlen_triton`. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def attend(
    u,
    m,
    l,
    q,
    k_head,
    v_head,
    stride,
    visible,
    scale_log2,
    begin,
    end,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return U, m and l after the keys [begin, end); a query sees the keys below `visible`, or all if not MASKED."""
    columns = tl.arange(0, PADDED)
    for first_key in range(begin, end, BLOCK_N):
        keys = first_key + tl.arange(0, BLOCK_N)
        inside = (columns < D)[None, :] & ((keys < end)[:, None] if MASKED else True)
        rows = keys.to(tl.int64)[:, None] * stride + columns[None, :]
        k = tl.load(k_head + rows, mask=inside, other=0.0)
        s = tl.dot(q, k.T) * scale_log2
        if MASKED:
            s = tl.where(keys[None, :] < visible[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        # A row that has seen no key yet: with 0 in the place of -inf every power is 2^-inf = 0, never NaN.
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.math.exp2(s - safe[:, None])
        rescale = tl.math.exp2(m - safe)
        l = l * rescale + tl.sum(p, axis=1)
        v = tl.load(v_head + rows, mask=inside, other=0.0)
        u = tl.dot(p.to(v.dtype), v, u * rescale[:, None])
        m = m_new
    return u, m, l


@triton.jit
def varlen_triton(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    o,
    lse,
    HKV,
    TOTAL_Q,
    ENDS,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute BLOCK_M queries of one sequence and one head in one program."""
    # The sequences before b have `before` tiles of queries. This program's tile is in the first b that reaches it.
    tile, b, before = tl.program_id(0), 0, 0
    q_begin, q_end = tl.load(cu_seqlens_q), tl.load(cu_seqlens_q + 1)
    while (b + 2 < ENDS) & (tile - before >= tl.cdiv(q_end - q_begin, BLOCK_M)):
        before += tl.cdiv(q_end - q_begin, BLOCK_M)
        b += 1
        q_begin, q_end = q_end, tl.load(cu_seqlens_q + b + 1)
    first_query, SQ = (tile - before) * BLOCK_M, q_end - q_begin
    if first_query >= SQ:
        return  # the grid has more programs than there are tiles
    k_begin = tl.load(cu_seqlens_k + b)
    SKV = tl.load(cu_seqlens_k + b + 1) - k_begin

    h, HQ = tl.program_id(1), tl.num_programs(1)
    queries = first_query + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, PADDED)
    inside = (queries < SQ)[:, None] & (columns < D)[None, :]
    rows = ((q_begin + queries).to(tl.int64) * HQ + h)[:, None] * D + columns[None, :]  # [query, h]
    q_tile = tl.load(q + rows, mask=inside, other=0.0)

    # The keys that a query sees are always a prefix. The first query sees the fewest, the last one the most.
    if CAUSAL == 0:
        visible = tl.full((BLOCK_M,), 0, tl.int32) + SKV
        whole, end = SKV // BLOCK_N * BLOCK_N, SKV
    else:
        diagonal = 1 if CAUSAL == 1 else 1 + SKV - SQ
        visible = tl.minimum(queries + diagonal, SKV)
        whole = tl.maximum(tl.minimum(first_query + diagonal, SKV), 0) // BLOCK_N * BLOCK_N
        end = tl.maximum(tl.minimum(tl.minimum(first_query + BLOCK_M, SQ) - 1 + diagonal, SKV), 0)

    u = tl.zeros((BLOCK_M, PADDED), tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    kv_head = (k_begin.to(tl.int64) * HKV + h // (HQ // HKV)) * D  # [key 0, kv head]; HQ / HKV query heads share it
    k_head, v_head, scale_log2 = k + kv_head, v + kv_head, scale * LOG2_E
    u, m, l = attend(u, m, l, q_tile, k_head, v_head, HKV * D, visible, scale_log2, 0, whole, D, PADDED, BLOCK_N, False)
    u, m, l = attend(
        u, m, l, q_tile, k_head, v_head, HKV * D, visible, scale_log2, whole, end, D, PADDED, BLOCK_N, True
    )

    # O = U / l, LSE = m + log l. l = 0 means that no key is visible; a NaN is not 0, and remains a NaN in both.
    empty = l == 0.0
    o_tile = u / tl.where(empty, 1.0, l)[:, None]
    tl.store(o + rows, o_tile.to(o.dtype.element_ty), mask=inside)
    log_sum = tl.where(empty, -float("inf"), m * LN_2 + tl.log(l))
    tl.store(lse + h.to(tl.int64) * TOTAL_Q + q_begin + queries, log_sum, mask=queries < SQ)
