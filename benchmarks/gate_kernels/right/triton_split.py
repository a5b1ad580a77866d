# A split-KV pair in Triton: the first kernel leaves a partial result per part of the keys, the second merges the
# parts; later parts may be empty.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    ELEMENT = "half"
# weft: define    CAUSAL = 0
# weft: define    BLOCK_N = 16
# weft: define    PARTS = 4
# weft: require   D <= 256
# weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: workspace part_u : f32[B, HQ, SQ, PARTS, D]
# weft: workspace part_m, part_l : f32[B, HQ, SQ, PARTS]
# weft: out       o    : ELEMENT[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: scalar    PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: launch    partial<num_warps=1>(q, k, v, part_u, part_m, part_l, HKV, SQ, SKV, scale)
# weft:           grid(SQ, HQ, B * PARTS) block(32)
# weft: launch    merge<num_warps=1>(part_u, part_m, part_l, o, lse) grid(B * HQ * SQ) block(32)
"""Attention in Triton, split. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def partial(
    q,
    k,
    v,
    part_u,
    part_m,
    part_l,
    HKV,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PARTS: tl.constexpr,
):
    """One program: one query of one head, and one part of its keys."""
    query, h, b, number = tl.program_id(0), tl.program_id(1), tl.program_id(2) // PARTS, tl.program_id(2) % PARTS
    HQ = tl.num_programs(1)
    row = (b * HQ + h).to(tl.int64) * SQ + query
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)
    columns = tl.arange(0, PADDED)
    q_row = tl.load(q + row * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    share = tl.cdiv(SKV, PARTS)
    end = tl.minimum((number + 1) * share, SKV)
    if CAUSAL:
        end = tl.minimum(end, query + (1 if CAUSAL == 1 else 1 + SKV - SQ))
    u = tl.zeros((PADDED,), tl.float32)
    m = tl.full((1,), -float("inf"), tl.float32)
    l = tl.zeros((1,), tl.float32)
    for first in range(number * share, end, BLOCK_N):
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
    at = row * PARTS + number
    tl.store(part_u + at * D + columns, u, mask=columns < D)
    tl.store(part_m + at + tl.arange(0, 1), m)
    tl.store(part_l + at + tl.arange(0, 1), l)


@triton.jit
def merge(part_u, part_m, part_l, o, lse, D: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr):
    """One program: one row of O."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, PADDED)
    parts = row * PARTS + tl.arange(0, PARTS)
    m = tl.load(part_m + parts)
    top = tl.max(m, axis=0)
    weight = tl.exp(m - tl.where(top == -float("inf"), 0.0, top))
    l = tl.sum(weight * tl.load(part_l + parts), axis=0)
    u = tl.load(part_u + parts[:, None] * D + columns[None, :], mask=(columns < D)[None, :], other=0.0)
    empty = l == 0.0
    o_row = tl.sum(u * weight[:, None], axis=0) / tl.where(empty, 1.0, l)
    tl.store(o + row * D + columns, o_row.to(o.dtype.element_ty), mask=columns < D)
    tl.store(lse + row, tl.where(empty, -float("inf"), top + tl.log(l)))
