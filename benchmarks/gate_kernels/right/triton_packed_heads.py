# Triton for grouped queries: the rows of a tile are the query heads of one key head, padded to 16, so that one
# program per query and key head reads K and V once for the whole group.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    CAUSAL = 0
# weft: define    BLOCK_N = 32
# weft: require   D <= 128
# weft: require   HQ // HKV <= 16
# weft: in        q    : f16[B, HQ, SQ, D] = normal
# weft: in        k, v : f16[B, HKV, SKV, D] = normal
# weft: out       o    : f16[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: launch    packed_heads<num_warps=2>(q, k, v, o, lse, HQ, SQ, SKV, scale)
# weft:           grid(SQ, HKV, B) block(64)
"""Attention in Triton, packed heads. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def packed_heads(
    q,
    k,
    v,
    o,
    lse,
    HQ,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: one query of all heads that share a key head."""
    query, kv_h, b, HKV = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    group = HQ // HKV
    member = tl.arange(0, 16)
    columns = tl.arange(0, PADDED)
    inside = (member < group)[:, None] & (columns < D)[None, :]
    kv_head = (b * HKV + kv_h).to(tl.int64)
    rows = (kv_head * group + member) * SQ + query  # [b, h, query]
    at_q = rows[:, None] * D + columns[None, :]
    q_tile = tl.load(q + at_q, mask=inside, other=0.0)
    end = SKV
    if CAUSAL:
        end = tl.maximum(tl.minimum(query + (1 if CAUSAL == 1 else 1 + SKV - SQ), SKV), 0)
    u = tl.zeros((16, PADDED), tl.float32)
    m = tl.full((16,), -float("inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    for first in range(0, end, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        at = (kv_head * SKV + keys)[:, None] * D + columns[None, :]
        there = (keys < end)[:, None] & (columns < D)[None, :]
        k_tile = tl.load(k + at, mask=there, other=0.0)
        v_tile = tl.load(v + at, mask=there, other=0.0)
        s = tl.where((keys < end)[None, :], tl.dot(q_tile, k_tile.T) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))  # finite: every tile has a visible key
        p = tl.exp(s - m_new[:, None])
        rescale = tl.exp(m - m_new)
        l = l * rescale + tl.sum(p, axis=1)
        u = tl.dot(p.to(v_tile.dtype), v_tile, u * rescale[:, None])
        m = m_new
    empty = l == 0.0
    tl.store(o + at_q, (u / tl.where(empty, 1.0, l)[:, None]).to(o.dtype.element_ty), mask=inside)
    tl.store(lse + rows, tl.where(empty, -float("inf"), m + tl.log(l)), mask=member < group)
