# Triton with two loops over the keys: whole tiles that every query of the program sees, without a mask, then the tiles
# at the diagonal and at the end. Pointers are made from strides.
#
# weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
# weft: define  CAUSAL = 0
# weft: define  BM = 32
# weft: define  BN = 16
# weft: require D <= 128
# weft: in      Q    : f16[B, HQ, SQ, D] = normal
# weft: in      K, V : f16[B, HKV, SKV, D] = normal
# weft: out     O    : f16[B, HQ, SQ, D]
# weft: out     LSE  : f32[B, HQ, SQ]
# weft: scalar  scale : f32 = 1 / sqrt(D)
# weft: scalar  DP   : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: scalar  q_batch : i32 = HQ * SQ * D
# weft: scalar  k_batch : i32 = HKV * SKV * D
# weft: launch  two_loops<num_warps=2>(Q, K, V, O, LSE, q_batch, SQ * D, D, k_batch, SKV * D, D, HKV, SQ, SKV, scale)
# weft:         grid(cdiv(SQ, BM), HQ, B) block(64)
"""Attention in Triton, two loops. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def inner(
    acc,
    l_i,
    m_i,
    q,
    k_base,
    v_base,
    stride_kn,
    rows,
    begin,
    end,
    n_keys,
    shift,
    scale,
    D: tl.constexpr,
    DP: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Add the keys from begin to end to a program's state."""
    cols = tl.arange(0, DP)
    for start in range(begin, end, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(
            k_base + cols[:, None] + keys[None, :] * stride_kn,
            mask=(cols < D)[:, None] & (keys < n_keys)[None, :],
            other=0.0,
        )
        s = tl.dot(q, k) * scale
        if MASKED:
            seen = (keys < n_keys)[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None] + shift)
            s = tl.where(seen, s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1))
        base = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp(s - base[:, None])
        alpha = tl.exp(m_i - base)
        l_i = l_i * alpha + tl.sum(p, axis=1)
        m_i = m_new
        v = tl.load(
            v_base + keys[:, None] * stride_kn + cols[None, :],
            mask=(keys < n_keys)[:, None] & (cols < D)[None, :],
            other=0.0,
        )
        acc = tl.dot(p.to(tl.float16), v, acc * alpha[:, None])
    return acc, l_i, m_i


@triton.jit
def two_loops(
    Q,
    K,
    V,
    O,
    LSE,
    stride_qb,
    stride_qh,
    stride_qm,
    stride_kb,
    stride_kh,
    stride_kn,
    HKV,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """One program: BM queries of one head."""
    pid_m, head, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    HQ = tl.num_programs(1)
    kv_head = head // (HQ // HKV)
    rows = pid_m * BM + tl.arange(0, BM)
    cols = tl.arange(0, DP)
    inside = (rows < SQ)[:, None] & (cols < D)[None, :]

    q_base = Q + batch.to(tl.int64) * stride_qb + head * stride_qh
    k_base = K + batch.to(tl.int64) * stride_kb + kv_head * stride_kh
    v_base = V + batch.to(tl.int64) * stride_kb + kv_head * stride_kh
    q = tl.load(q_base + rows[:, None] * stride_qm + cols[None, :], mask=inside, other=0.0)

    acc = tl.zeros((BM, DP), tl.float32)
    m_i = tl.full((BM,), float("-inf"), tl.float32)
    l_i = tl.zeros((BM,), tl.float32)

    shift = 0
    if CAUSAL == 2:
        shift = SKV - SQ
    seen_first = SKV
    seen_last = SKV
    if CAUSAL:
        seen_first = tl.maximum(tl.minimum(pid_m * BM + 1 + shift, SKV), 0)
        seen_last = tl.maximum(tl.minimum(pid_m * BM + BM + shift, SKV), 0)
    whole = seen_first // BN * BN

    acc, l_i, m_i = inner(
        acc, l_i, m_i, q, k_base, v_base, stride_kn, rows, 0, whole, SKV, shift, scale, D, DP, BN, CAUSAL, False
    )
    acc, l_i, m_i = inner(
        acc, l_i, m_i, q, k_base, v_base, stride_kn, rows, whole, seen_last, SKV, shift, scale, D, DP, BN, CAUSAL, True
    )

    none = l_i == 0.0
    acc = acc / tl.where(none, 1.0, l_i)[:, None]
    o_base = O + batch.to(tl.int64) * stride_qb + head * stride_qh
    tl.store(o_base + rows[:, None] * stride_qm + cols[None, :], acc.to(tl.float16), mask=inside)
    lse_rows = (batch * HQ + head) * SQ + rows
    tl.store(LSE + lse_rows, tl.where(none, float("-inf"), m_i + tl.log(l_i)), mask=rows < SQ)
