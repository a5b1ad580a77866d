# Attention in Triton, one query per program: small enough to be compiled and repaired in seconds.
#
# weft: sizes   B=1 HQ=2 HKV=1 SQ=5 SKV=9 D=32
# weft: define  ELEMENT = "half"
# weft: define  BLOCK_N = 16
# weft: scalar  scale : f32 = 1 / sqrt(D)
# weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: out     o    : ELEMENT[B, HQ, SQ, D]
# weft: out     lse  : f32[B, HQ, SQ]
# weft: require (D == 32) + (D == 64)
# weft: launch  row_attention<num_warps=1>(q, k, v, o, lse, HQ, HKV, SQ, SKV, scale)
# weft:         grid(SQ, HQ, B) block(32)
"""Attention with one query per program. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def row_attention(q, k, v, o, lse, HQ, HKV, SQ, SKV, scale, D: tl.constexpr, BLOCK_N: tl.constexpr):
    query, h, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = ((b * HQ + h) * SQ + query).to(tl.int64)
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)
    columns = tl.arange(0, D)
    q_row = tl.load(q + row * D + columns).to(tl.float32)
    m = -float("inf")
    l = 0.0
    u = tl.zeros((D,), tl.float32)
    for first_key in range(0, SKV, BLOCK_N):
        keys = first_key + tl.arange(0, BLOCK_N)
        at = (kv_head * SKV + keys)[:, None] * D + columns[None, :]
        inside = (keys < SKV)[:, None]
        k_tile = tl.load(k + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.sum(q_row[None, :] * k_tile, axis=1) * scale
        s = tl.where(keys < SKV, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m_new)
        rescale = tl.exp(m - m_new)
        v_tile = tl.load(v + at, mask=inside, other=0.0).to(tl.float32)
        u = u * rescale + tl.sum(p[:, None] * v_tile, axis=0)
        l = l * rescale + tl.sum(p, axis=0)
        m = m_new
    tl.store(o + row * D + columns, u / l)
    tl.store(lse + row, m + tl.log(l))
