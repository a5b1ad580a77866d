# Decoding in Triton: the query heads of a group are the rows of a tile, the keys are split, a second kernel merges.
#
# weft: sizes     B=1 HQ=4 HKV=2 SQ=1 SKV=300 D=64
# weft: define    CAUSAL = 0
# weft: define    BLOCK_H = 16
# weft: define    BLOCK_N = 32
# weft: define    SPLITS = 4
# weft: require   HQ <= BLOCK_H * HKV : a group fits into a tile
# weft: require   D <= 128
# weft: in        q    : f16[B, HQ, SQ, D] = normal
# weft: in        k, v : f16[B, HKV, SKV, D] = normal
# weft: workspace mid_o : f32[B, HQ, SQ, SPLITS, D]
# weft: workspace mid_ml : f32[B, HQ, SQ, SPLITS, 2]
# weft: out       o    : f16[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    BLOCK_D : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: launch    decode_split<num_warps=1>(q, k, v, mid_o, mid_ml, scale, HQ, HKV, SQ, SKV)
# weft:           grid(SQ, B * HKV, SPLITS) block(32)
# weft: launch    decode_merge<num_warps=1>(mid_o, mid_ml, o, lse) grid(B * HQ * SQ) block(32)
"""Decoding in Triton. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def decode_split(
    q,
    k,
    v,
    mid_o,
    mid_ml,
    scale,
    HQ,
    HKV,
    SQ,
    SKV,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """One program: one position, the heads of one group, one part of the keys."""
    pos = tl.program_id(0)
    bkv = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    group = HQ // HKV
    h_in_group = tl.arange(0, BLOCK_H)
    valid_h = h_in_group < group
    q_row = (bkv * group + h_in_group) * SQ + pos
    d = tl.arange(0, BLOCK_D)
    valid_d = d < D

    q_tile = tl.load(q + q_row[:, None] * D + d[None, :], mask=valid_h[:, None] & valid_d[None, :], other=0.0)

    limit = SKV
    if CAUSAL == 1:
        limit = tl.minimum(SKV, pos + 1)
    if CAUSAL == 2:
        limit = tl.minimum(SKV, pos + 1 + SKV - SQ)
    split_len = tl.cdiv(tl.cdiv(SKV, SPLITS), BLOCK_N) * BLOCK_N
    lo = split * split_len
    hi = tl.minimum(lo + split_len, limit)

    m = tl.full([BLOCK_H], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, BLOCK_D], tl.float32)
    for start in range(lo, hi, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        kv_at = (bkv * SKV + n)[:, None] * D + d[None, :]
        kv_mask = (n < hi)[:, None] & valid_d[None, :]
        k_tile = tl.load(k + kv_at, mask=kv_mask, other=0.0)
        s = tl.dot(q_tile, tl.trans(k_tile)) * scale
        s = tl.where((n < hi)[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        v_tile = tl.load(v + kv_at, mask=kv_mask, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v_tile.dtype), v_tile)
        m = m_new

    mid_row = q_row * SPLITS + split
    tl.store(mid_o + mid_row[:, None] * D + d[None, :], acc, mask=valid_h[:, None] & valid_d[None, :])
    tl.store(mid_ml + mid_row * 2, m, mask=valid_h)
    tl.store(mid_ml + mid_row * 2 + 1, l, mask=valid_h)


@triton.jit
def decode_merge(mid_o, mid_ml, o, lse, D: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr):
    """One program: one row of O."""
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    part = row * SPLITS + tl.arange(0, SPLITS)
    m = tl.load(mid_ml + part * 2)
    l = tl.load(mid_ml + part * 2 + 1)
    acc = tl.load(mid_o + part[:, None] * D + d[None, :], mask=(d < D)[None, :], other=0.0)
    m_all = tl.max(m, 0)
    weight = tl.exp(m - tl.where(m_all == float("-inf"), 0.0, m_all))
    l_all = tl.sum(l * weight, 0)
    result = tl.sum(acc * weight[:, None], 0) / tl.where(l_all > 0.0, l_all, 1.0)
    tl.store(o + row * D + d, result.to(o.dtype.element_ty), mask=d < D)
    tl.store(lse + row, tl.where(l_all > 0.0, m_all + tl.log(l_all), float("-inf")))
