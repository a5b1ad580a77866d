# Triton without tensor cores: one query per program, products by tl.sum(x * w); eight warps share tiles that are
# too small for them, so that several warps hold and store the same values.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    ELEMENT = "half"
# weft: define    CAUSAL = 0
# weft: define    BLOCK_N = 16
# weft: require   D <= 256
# weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: out       o    : ELEMENT[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: launch    one_query<num_warps=8>(q, k, v, o, lse, HKV, SQ, SKV, scale)
# weft:           grid(SQ, HQ, B) block(256)
"""Attention in Triton, replicated. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def one_query(
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
    BLOCK_N: tl.constexpr,
):
    """One program: one query of one head."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    q_head = (b * HQ + h).to(tl.int64)
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)
    query = tl.program_id(0)
    columns = tl.arange(0, PADDED)
    row = (q_head * SQ + query) * D + columns
    q_row = tl.load(q + row, mask=columns < D, other=0.0).to(tl.float32)
    end = SKV
    if CAUSAL:
        end = tl.maximum(tl.minimum(query + (1 if CAUSAL == 1 else 1 + SKV - SQ), SKV), 0)
    u = tl.zeros((PADDED,), tl.float32)
    m = -float("inf")
    l = 0.0
    for first in range(0, end, BLOCK_N):
        keys = first + tl.arange(0, BLOCK_N)
        at = (kv_head * SKV + keys)[:, None] * D + columns[None, :]
        there = (keys < end)[:, None] & (columns < D)[None, :]
        k_tile = tl.load(k + at, mask=there, other=0.0).to(tl.float32)
        v_tile = tl.load(v + at, mask=there, other=0.0).to(tl.float32)
        s = tl.where(keys < end, tl.sum(k_tile * q_row[None, :], axis=1) * scale, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m_new)
        rescale = tl.exp(m - m_new)
        l = l * rescale + tl.sum(p, axis=0)
        u = u * rescale + tl.sum(v_tile * p[:, None], axis=0)
        m = m_new
    empty = l == 0.0
    tl.store(o + row, (u / tl.where(empty, 1.0, l)).to(o.dtype.element_ty), mask=columns < D)
    tl.store(lse + q_head * SQ + query, tl.where(empty, -float("inf"), m + tl.log(l)))
