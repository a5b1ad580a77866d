# The backward pass of attention in Triton.
#
#     P = exp(Q Kᵀ · scale - LSE),   dV = Pᵀ dO,   dP = dO Vᵀ,   delta = Σ_d dO ∘ O
#     dS = P ∘ (dP - delta),   dQ = scale · dS K,   dK = scale · dSᵀ Q
#
# Idea      The two loops of `backward` on tiles: a program of `backward_dq` owns BLOCK_M queries and iterates over the
#           keys, one of `backward_dkv` owns BLOCK_N keys and iterates over the queries of all heads of its group. Every
#           product is a tl.dot; P and dS are rounded to the element type for it. No atomics: the same bits every time.
# History   The usual way to write it; kernels that make dQ in the loop over keys save a product and need atomics.
# Levers    BLOCK_M and BLOCK_N; WARPS and STAGES are Triton's num_warps and num_stages.
# Supports  ELEMENT half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
#           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
#           A query that sees no key has LSE = -inf and adds nothing.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    ELEMENT = "half"
# weft: define    CAUSAL = 0
# weft: define    BLOCK_M = 32
# weft: define    BLOCK_N = 32
# weft: define    WARPS = 4
# weft: define    STAGES = 2
# weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: in        o    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in        lse  : f32[B, HQ, SQ] = normal
# weft: in        do   : ELEMENT[B, HQ, SQ, D] = normal
# weft: workspace delta : f32[B, HQ, SQ]
# weft: out       dq   : ELEMENT[B, HQ, SQ, D]
# weft: out       dk, dv : ELEMENT[B, HKV, SKV, D]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: launch    backward_delta<num_warps={WARPS}>(o, do, delta, SQ)
# weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
# weft: launch    backward_dq<num_warps={WARPS}, num_stages={STAGES}>(q, k, v, lse, do, delta, dq, HKV, SQ, SKV, scale)
# weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
# weft: launch backward_dkv<num_warps={WARPS}, num_stages={STAGES}>(q, k, v, lse, do, delta, dk, dv, HQ, SQ, SKV, scale)
# weft:           grid(cdiv(SKV, BLOCK_N), HKV, B) block(32 * WARPS)
"""The backward pass of attention in Triton: the rung `backward_triton`. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def weights(q, k, lse, queries, keys, SQ, SKV, scale, CAUSAL: tl.constexpr):
    """Return P (queries, keys), 0 where a query does not see a key; LSE of a row without keys is replaced by 0."""
    seen = (queries < SQ)[:, None] & (keys < SKV)[None, :]
    if CAUSAL == 1:
        seen = seen & (keys[None, :] <= queries[:, None])
    if CAUSAL == 2:
        seen = seen & (keys[None, :] <= queries[:, None] + SKV - SQ)
    safe = tl.where(lse == -float("inf"), 0.0, lse)
    s = tl.dot(q, k.T) * scale - safe[:, None]
    return tl.where(seen, tl.math.exp2(s * LOG2_E), 0.0)


@triton.jit
def backward_delta(o, do, delta, SQ, D: tl.constexpr, PADDED: tl.constexpr, BLOCK_M: tl.constexpr):
    """Compute delta of BLOCK_M queries of one head in one program."""
    head = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    queries, columns = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, PADDED)
    rows = head * SQ * D + queries[:, None] * D + columns[None, :]
    inside = (queries < SQ)[:, None] & (columns < D)[None, :]
    products = tl.load(o + rows, mask=inside, other=0.0).to(tl.float32) * tl.load(do + rows, mask=inside, other=0.0)
    tl.store(delta + head * SQ + queries, tl.sum(products, axis=1), mask=queries < SQ)


@triton.jit
def backward_dq(
    q,
    k,
    v,
    lse,
    do,
    delta,
    dq,
    HKV,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute dQ of BLOCK_M queries of one head in one program."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    head = (b * HQ + h).to(tl.int64)  # [b, h]
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)  # HQ / HKV query heads share [b, kv head]
    first_query = tl.program_id(0) * BLOCK_M
    queries, columns = first_query + tl.arange(0, BLOCK_M), tl.arange(0, PADDED)
    inside = (queries < SQ)[:, None] & (columns < D)[None, :]
    rows = head * SQ * D + queries[:, None] * D + columns[None, :]
    q_tile, do_tile = tl.load(q + rows, mask=inside, other=0.0), tl.load(do + rows, mask=inside, other=0.0)
    log_sum = tl.load(lse + head * SQ + queries, mask=queries < SQ, other=0.0)
    own_delta = tl.load(delta + head * SQ + queries, mask=queries < SQ, other=0.0)

    end = SKV
    if CAUSAL != 0:  # the last query sees the most keys
        diagonal = 1 if CAUSAL == 1 else 1 + SKV - SQ
        end = tl.maximum(tl.minimum(tl.minimum(first_query + BLOCK_M, SQ) - 1 + diagonal, SKV), 0)
    total = tl.zeros((BLOCK_M, PADDED), tl.float32)
    for first_key in range(0, end, BLOCK_N):
        keys = first_key + tl.arange(0, BLOCK_N)
        kv_rows = kv_head * SKV * D + keys[:, None] * D + columns[None, :]
        kv_inside = (keys < SKV)[:, None] & (columns < D)[None, :]
        k_tile, v_tile = (
            tl.load(k + kv_rows, mask=kv_inside, other=0.0),
            tl.load(v + kv_rows, mask=kv_inside, other=0.0),
        )
        p = weights(q_tile, k_tile, log_sum, queries, keys, SQ, SKV, scale, CAUSAL)
        ds = p * (tl.dot(do_tile, v_tile.T) - own_delta[:, None])
        total = tl.dot(ds.to(k_tile.dtype), k_tile, total)
    tl.store(dq + rows, (total * scale).to(dq.dtype.element_ty), mask=inside)


@triton.jit
def backward_dkv(
    q,
    k,
    v,
    lse,
    do,
    delta,
    dk,
    dv,
    HQ,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Compute dK and dV of BLOCK_N keys of one head in one program."""
    h, b, HKV = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    first_key = tl.program_id(0) * BLOCK_N
    keys, columns = first_key + tl.arange(0, BLOCK_N), tl.arange(0, PADDED)
    inside = (keys < SKV)[:, None] & (columns < D)[None, :]
    kv_rows = (b * HKV + h).to(tl.int64) * SKV * D + keys[:, None] * D + columns[None, :]
    k_tile, v_tile = tl.load(k + kv_rows, mask=inside, other=0.0), tl.load(v + kv_rows, mask=inside, other=0.0)

    begin = 0
    if CAUSAL != 0:  # the first query that sees the first key; complete tiles of queries before it see none
        begin = tl.maximum(first_key if CAUSAL == 1 else first_key - SKV + SQ, 0) // BLOCK_M * BLOCK_M
    dk_sum, dv_sum = tl.zeros((BLOCK_N, PADDED), tl.float32), tl.zeros((BLOCK_N, PADDED), tl.float32)
    group = HQ // HKV
    for member in range(0, group):
        head = (b * HQ + h * group + member).to(tl.int64)
        for first_query in range(begin, SQ, BLOCK_M):
            queries = first_query + tl.arange(0, BLOCK_M)
            rows = head * SQ * D + queries[:, None] * D + columns[None, :]
            q_inside = (queries < SQ)[:, None] & (columns < D)[None, :]
            q_tile, do_tile = tl.load(q + rows, mask=q_inside, other=0.0), tl.load(do + rows, mask=q_inside, other=0.0)
            log_sum = tl.load(lse + head * SQ + queries, mask=queries < SQ, other=0.0)
            own_delta = tl.load(delta + head * SQ + queries, mask=queries < SQ, other=0.0)
            p = weights(q_tile, k_tile, log_sum, queries, keys, SQ, SKV, scale, CAUSAL)
            ds = p * (tl.dot(do_tile, v_tile.T) - own_delta[:, None])
            dv_sum = tl.dot(p.to(do_tile.dtype).T, do_tile, dv_sum)
            dk_sum = tl.dot(ds.to(q_tile.dtype).T, q_tile, dk_sum)
    tl.store(dk + kv_rows, (dk_sum * scale).to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + kv_rows, dv_sum.to(dv.dtype.element_ty), mask=inside)
