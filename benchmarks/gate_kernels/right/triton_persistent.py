# A persistent Triton kernel: six programs walk all blocks of queries with a fixed stride; scores in base 2,
# num_stages=3 lets the compiler keep copies in flight.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    CAUSAL = 0
# weft: define    BLOCK_M = 16
# weft: define    BLOCK_N = 32
# weft: require   D <= 128
# weft: in        q    : f16[B, HQ, SQ, D] = normal
# weft: in        k, v : f16[B, HKV, SKV, D] = normal
# weft: out       o    : f16[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: launch    persistent<num_warps=4, num_stages=3>(q, k, v, o, lse, B, HQ, HKV, SQ, SKV, scale) grid(6) block(128)
"""Attention in Triton, persistent. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def persistent(
    q,
    k,
    v,
    o,
    lse,
    B,
    HQ,
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
    """One program: every sixth block of BLOCK_M queries."""
    blocks = tl.cdiv(SQ, BLOCK_M)
    columns = tl.arange(0, PADDED)
    for item in range(tl.program_id(0), B * HQ * blocks, tl.num_programs(0)):
        q_head = (item // blocks).to(tl.int64)
        kv_head = q_head // HQ * HKV + q_head % HQ // (HQ // HKV)
        queries = item % blocks * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = (queries < SQ)[:, None] & (columns < D)[None, :]
        rows = (q_head * SQ + queries)[:, None] * D + columns[None, :]
        q_tile = tl.load(q + rows, mask=inside, other=0.0)
        visible = tl.minimum(queries + (1 if CAUSAL == 1 else 1 + SKV - SQ), SKV) if CAUSAL else queries * 0 + SKV
        u = tl.zeros((BLOCK_M, PADDED), tl.float32)
        m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
        l = tl.zeros((BLOCK_M,), tl.float32)
        for first in range(0, tl.max(tl.where(queries < SQ, visible, 0)), BLOCK_N):
            keys = first + tl.arange(0, BLOCK_N)
            at = (kv_head * SKV + keys)[:, None] * D + columns[None, :]
            there = (keys < SKV)[:, None] & (columns < D)[None, :]
            k_tile = tl.load(k + at, mask=there, other=0.0)
            v_tile = tl.load(v + at, mask=there, other=0.0)
            s = tl.dot(q_tile, k_tile.T) * (scale * 1.4426950408889634)
            s = tl.where(keys[None, :] < visible[:, None], s, -float("inf"))
            m_new = tl.maximum(m, tl.max(s, axis=1))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            p = tl.exp2(s - shift[:, None])
            rescale = tl.exp2(m - shift)
            l = l * rescale + tl.sum(p, axis=1)
            u = tl.dot(p.to(v_tile.dtype), v_tile, u * rescale[:, None])
            m = m_new
        empty = l == 0.0
        tl.store(o + rows, (u / tl.where(empty, 1.0, l)[:, None]).to(o.dtype.element_ty), mask=inside)
        log_sum = tl.where(empty, -float("inf"), m * 0.6931471805599453 + tl.log(l))
        tl.store(lse + q_head * SQ + queries, log_sum, mask=queries < SQ)
