# Triton with make_block_ptr: boundary checks take the place of masks, tl.advance moves along the keys, and only
# visible tiles are walked.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    CAUSAL = 0
# weft: define    BLOCK_M = 32
# weft: define    BLOCK_N = 16
# weft: require   D <= 128
# weft: in        q    : f16[B, HQ, SQ, D] = normal
# weft: in        k, v : f16[B, HKV, SKV, D] = normal
# weft: out       o    : f16[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: launch    block_ptr<num_warps=4>(q, k, v, o, lse, HKV, SQ, SKV, scale)
# weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(128)
"""Attention in Triton, block ptr. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl

@triton.jit
def block_ptr(
    q, k, v, o, lse, HKV, SQ, SKV, scale,
    D: tl.constexpr, PADDED: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_M queries of one head."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    q_head = (b * HQ + h).to(tl.int64)
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)
    first_query = tl.program_id(0) * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    base = q_head * SQ * D
    q_at = tl.make_block_ptr(q + base, (SQ, D), (D, 1), (first_query, 0), (BLOCK_M, PADDED), (1, 0))
    o_at = tl.make_block_ptr(o + base, (SQ, D), (D, 1), (first_query, 0), (BLOCK_M, PADDED), (1, 0))
    base = kv_head * SKV * D
    k_at = tl.make_block_ptr(k + base, (D, SKV), (1, D), (0, 0), (PADDED, BLOCK_N), (0, 1))
    v_at = tl.make_block_ptr(v + base, (SKV, D), (D, 1), (0, 0), (BLOCK_N, PADDED), (1, 0))
    q_tile = tl.load(q_at, boundary_check=(0, 1), padding_option="zero")
    visible = tl.minimum(queries + (1 if CAUSAL == 1 else 1 + SKV - SQ), SKV) if CAUSAL else queries * 0 + SKV
    end = tl.max(tl.where(queries < SQ, visible, 0))
    u = tl.zeros((BLOCK_M, PADDED), tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, end, BLOCK_N):
        k_tile = tl.load(k_at, boundary_check=(0, 1), padding_option="zero")
        v_tile = tl.load(v_at, boundary_check=(0, 1), padding_option="zero")
        s = tl.dot(q_tile, k_tile) * scale
        s = tl.where((first + tl.arange(0, BLOCK_N))[None, :] < visible[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)  # a row that has seen no key yet
        p = tl.exp(s - shift[:, None])
        rescale = tl.exp(m - shift)
        l = l * rescale + tl.sum(p, axis=1)
        u = tl.dot(p.to(v_tile.dtype), v_tile, u * rescale[:, None])
        m = m_new
        k_at = tl.advance(k_at, (0, BLOCK_N))
        v_at = tl.advance(v_at, (BLOCK_N, 0))
    empty = l == 0.0
    tl.store(o_at, (u / tl.where(empty, 1.0, l)[:, None]).to(o.dtype.element_ty), boundary_check=(0, 1))
    tl.store(lse + q_head * SQ + queries, tl.where(empty, -float("inf"), m + tl.log(l)), mask=queries < SQ)
