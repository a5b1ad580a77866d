# Triton with pointers and masks: tiles of 16 queries and 32 keys, the head dimension padded to a power of two,
# tl.dot in IEEE precision so that f32 stays f32.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    ELEMENT = "half"
# weft: define    CAUSAL = 0
# weft: define    BLOCK_M = 16
# weft: define    BLOCK_N = 32
# weft: require   D <= 128
# weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: out       o    : ELEMENT[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: launch    masks<num_warps=2>(q, k, v, o, lse, HKV, SQ, SKV, scale)
# weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(64)
"""Attention in Triton, masks. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def masks(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_M queries of one head."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    q_head = (b * HQ + h).to(tl.int64)
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)
    queries = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, PADDED)
    inside = (queries < SQ)[:, None] & (columns < D)[None, :]
    rows = (q_head * SQ + queries)[:, None] * D + columns[None, :]
    q_tile = tl.load(q + rows, mask=inside, other=0.0)
    visible = tl.minimum(queries + (1 if CAUSAL == 1 else 1 + SKV - SQ), SKV) if CAUSAL else queries * 0 + SKV
    u = tl.zeros((BLOCK_M, PADDED), tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, SKV, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        at = (kv_head * SKV + keys)[:, None] * D + columns[None, :]
        there = (keys < SKV)[:, None] & (columns < D)[None, :]
        k_tile = tl.load(k + at, mask=there, other=0.0)
        v_tile = tl.load(v + at, mask=there, other=0.0)
        s = tl.dot(q_tile, k_tile.T, input_precision="ieee") * scale
        s = tl.where(keys[None, :] < visible[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)  # a row that has seen no key yet
        p = tl.exp(s - shift[:, None])
        rescale = tl.exp(m - shift)
        l = l * rescale + tl.sum(p, axis=1)
        u = tl.dot(p.to(v_tile.dtype), v_tile, u * rescale[:, None], input_precision="ieee")
        m = m_new
    empty = l == 0.0
    tl.store(o + rows, (u / tl.where(empty, 1.0, l)[:, None]).to(o.dtype.element_ty), mask=inside)
    tl.store(lse + q_head * SQ + queries, tl.where(empty, -float("inf"), m + tl.log(l)), mask=queries < SQ)
