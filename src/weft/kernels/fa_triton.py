# Fused attention in Triton.
#
#     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
#
# Idea      The tiles and the online softmax of `pipelined`, as operations on entire tiles: a program owns BLOCK_M
#           queries and iterates over the keys in tiles of BLOCK_N. The compiler decides which lane holds what, the
#           swizzle of shared memory and the asynchronous copies; num_stages is the most tiles it has in flight.
#           Tiles that every query sees entirely come first and need no mask; then those on the diagonal or at the end.
#           With a window, those at its left end come before all others.
#           The softmax works in base 2: with s = S · scale · log2(e), P = 2^(s - m), m' = max(m, max_n s).
# History   The usual way to write attention today. D is padded to the next power of two, as tl.arange requires.
# Levers    BLOCK_M and BLOCK_N; WARPS and STAGES are Triton's num_warps and num_stages.
# Supports  ELEMENT half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
#           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
#           WINDOW_LEFT, WINDOW_RIGHT: how many keys before and, if CAUSAL is 0, after the diagonal it sees; -1 all.
#           A query that sees no key gets O = 0 and LSE = -inf.
#
# weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define  ELEMENT = "half"
# weft: define  CAUSAL = 0
# weft: define  WINDOW_LEFT = -1
# weft: define  WINDOW_RIGHT = -1
# weft: define  BLOCK_M = 64
# weft: define  BLOCK_N = 32
# weft: define  WARPS = 4
# weft: define  STAGES = 2
# weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: out     o    : ELEMENT[B, HQ, SQ, D]
# weft: out     lse  : f32[B, HQ, SQ]
# weft: scalar  scale : f32 = 1 / sqrt(D)
# weft: scalar  PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: launch  fa_triton<num_warps={WARPS}, num_stages={STAGES}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
# weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
"""Fused attention in Triton: the rung `fa_triton`. A jitted function has no Python types."""
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
    first,
    visible,
    scale_log2,
    begin,
    end,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Return U, m and l after the keys [begin, end).

    A query sees the keys below `visible`, with a WINDOW from `first` on; all keys if not MASKED.
    """
    columns = tl.arange(0, PADDED)
    for first_key in range(begin, end, BLOCK_N):
        keys = first_key + tl.arange(0, BLOCK_N)
        inside = (columns < D)[None, :] & ((keys < end)[:, None] if MASKED else True)
        rows = keys[:, None] * D + columns[None, :]
        k = tl.load(k_head + rows, mask=inside, other=0.0)
        s = tl.dot(q, k.T) * scale_log2
        if MASKED:
            s = tl.where(keys[None, :] < visible[:, None], s, -float("inf"))
        if MASKED and WINDOW:
            s = tl.where(keys[None, :] >= first[:, None], s, -float("inf"))
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
def fa_triton(
    q,
    k,
    v,
    o,
    lse,
    HKV,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW_LEFT: tl.constexpr,
    WINDOW_RIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute BLOCK_M queries of one head in one program."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    q_head = (b * HQ + h).to(tl.int64)  # [b, h]
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)  # HQ / HKV query heads share [b, kv head]
    first_query = tl.program_id(0) * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, PADDED)
    inside = (queries < SQ)[:, None] & (columns < D)[None, :]
    rows = queries[:, None] * D + columns[None, :]
    q_tile = tl.load(q + q_head * SQ * D + rows, mask=inside, other=0.0)

    # The keys that a query sees are always a prefix, apart from the left end of a window. The first query sees the
    # fewest, the last one the most.
    if CAUSAL == 0 and WINDOW_RIGHT < 0:
        visible = tl.full((BLOCK_M,), 0, tl.int32) + SKV
        whole, end = SKV // BLOCK_N * BLOCK_N, SKV
    else:
        diagonal = 1 if CAUSAL == 1 else 1 + SKV - SQ
        if CAUSAL == 0:
            diagonal += WINDOW_RIGHT
        visible = tl.minimum(queries + diagonal, SKV)
        whole = tl.maximum(tl.minimum(first_query + diagonal, SKV), 0) // BLOCK_N * BLOCK_N
        end = tl.maximum(tl.minimum(tl.minimum(first_query + BLOCK_M, SQ) - 1 + diagonal, SKV), 0)

    u = tl.zeros((BLOCK_M, PADDED), tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    k_head, v_head, scale_log2 = k + kv_head * SKV * D, v + kv_head * SKV * D, scale * LOG2_E
    WINDOW: tl.constexpr = WINDOW_LEFT >= 0
    first, middle, tail = queries, 0, whole
    if WINDOW:
        shift = (0 if CAUSAL == 1 else SKV - SQ) - WINDOW_LEFT
        first = queries + shift  # no query sees a tile before `begin`; from `left_end` on, none is left of a window
        begin = tl.maximum(first_query + shift, 0) // BLOCK_N * BLOCK_N
        left_end = tl.minimum(tl.cdiv(tl.maximum(first_query + BLOCK_M - 1 + shift, 0), BLOCK_N) * BLOCK_N, whole)
        u, m, l = attend(
            u, m, l, q_tile, k_head, v_head, first, visible, scale_log2, begin, left_end, D, PADDED, BLOCK_N, True, True
        )
        middle, tail = tl.maximum(begin, left_end), tl.maximum(begin, whole)
    u, m, l = attend(
        u, m, l, q_tile, k_head, v_head, first, visible, scale_log2, middle, whole, D, PADDED, BLOCK_N, False, False
    )
    u, m, l = attend(
        u, m, l, q_tile, k_head, v_head, first, visible, scale_log2, tail, end, D, PADDED, BLOCK_N, True, WINDOW
    )

    # O = U / l, LSE = m + log l. l = 0 means that no key is visible; a NaN is not 0, and remains a NaN in both.
    empty = l == 0.0
    o_tile = u / tl.where(empty, 1.0, l)[:, None]
    tl.store(o + q_head * SQ * D + rows, o_tile.to(o.dtype.element_ty), mask=inside)
    log_sum = tl.where(empty, -float("inf"), m * LN_2 + tl.log(l))
    tl.store(lse + q_head * SQ + queries, log_sum, mask=queries < SQ)
