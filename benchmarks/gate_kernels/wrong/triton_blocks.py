# Triton: 32 queries by 32 keys, base e, no masked and unmasked halves. One query (SQ = 1) takes 128 keys at a time.
#
# wrong 1 d_above_96: V has 96 columns at most (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=128 f16 none unit_normal)
# wrong 2 decode_rest: SQ = 1 drops a last tile (seen at B=1 HQ=1 HKV=1 SQ=1 SKV=130 D=32 f16 none unit_normal)
# wrong 3 long_keys: keys beyond 608 are cut (seen at B=1 HQ=1 HKV=1 SQ=2 SKV=700 D=16 f16 none unit_normal)
# wrong 4 few_rows: SQ < 16 as if B = 1 (seen at B=2 HQ=1 HKV=1 SQ=5 SKV=20 D=32 f16 none unit_normal)
# wrong 5 tf32: f32 is multiplied as TF32 (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=32 f32 none unit_normal)
#
# weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
# weft: define  ELEMENT = "half"
# weft: define  CAUSAL = 0
# weft: define  WRONG = 0
# weft: define  ROWS = 32
# weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: out     o    : ELEMENT[B, HQ, SQ, D]
# weft: out     lse  : f32[B, HQ, SQ]
# weft: scalar  scale : f32 = 1 / sqrt(D)
# weft: scalar  PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64), 16 * (D > 128))
# weft: scalar  KEYS : i32 = 32 + 96 * (SQ == 1)
# weft: launch  triton_blocks<num_warps=2>(q, k, v, o, lse, HKV, SQ, SKV, scale)
# weft:         grid(cdiv(SQ, ROWS), HQ, B) block(64)
"""Attention in Triton with one bug per value of WRONG. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def triton_blocks(
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
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    CAUSAL: tl.constexpr,
    WRONG: tl.constexpr,
):
    """One program: ROWS queries of one head."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, PADDED)
    q_head = (b * HQ + h).to(tl.int64)
    kv_batch = b
    if WRONG == 4:
        kv_batch = tl.where(SQ < 16, 0, b)
    kv_head = (kv_batch * HKV + h // (HQ // HKV)).to(tl.int64)
    inside = (rows < SQ)[:, None] & (columns < D)[None, :]
    q_tile = tl.load(q + q_head * SQ * D + rows[:, None] * D + columns[None, :], mask=inside, other=0.0)

    visible = tl.zeros((ROWS,), tl.int32) + SKV
    if CAUSAL == 1:
        visible = tl.minimum(rows + 1, SKV)
    if CAUSAL == 2:
        visible = tl.minimum(rows + 1 + SKV - SQ, SKV)
    u = tl.zeros((ROWS, PADDED), tl.float32)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    l = tl.zeros((ROWS,), tl.float32)
    end = SKV
    if WRONG == 2 and KEYS == 128:
        end = tl.maximum(SKV // KEYS * KEYS, tl.minimum(SKV, KEYS))
    if WRONG == 3:
        end = tl.minimum(SKV, 608)
    precision: tl.constexpr = "ieee" if WRONG != 5 else "tf32"
    for first in range(0, end, KEYS):
        keys = first + tl.arange(0, KEYS)
        at = kv_head * SKV * D + keys[:, None] * D + columns[None, :]
        k_tile = tl.load(k + at, mask=(keys < SKV)[:, None] & (columns < D)[None, :], other=0.0)
        s = tl.dot(q_tile, k_tile.T, input_precision=precision) * scale
        s = tl.where(keys[None, :] < visible[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(s - base[:, None])
        rescale = tl.exp(m - base)
        l = l * rescale + tl.sum(p, axis=1)
        wide: tl.constexpr = D if WRONG != 1 else min(D, 96)
        v_tile = tl.load(v + at, mask=(keys < SKV)[:, None] & (columns < wide)[None, :], other=0.0)
        u = tl.dot(p.to(v_tile.dtype), v_tile, u * rescale[:, None], input_precision=precision)
        m = m_new
    empty = l == 0.0
    o_tile = u / tl.where(empty, 1.0, l)[:, None]
    tl.store(o + q_head * SQ * D + rows[:, None] * D + columns[None, :], o_tile.to(o.dtype.element_ty), mask=inside)
    tl.store(lse + q_head * SQ + rows, tl.where(empty, -float("inf"), m + tl.log(l)), mask=rows < SQ)
