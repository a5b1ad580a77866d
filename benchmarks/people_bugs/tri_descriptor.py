# Triton with tensor descriptors: tiles are loaded by their offsets and end in zeros, weights are powers of 2.
#
# weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
# weft: define  CAUSAL = 0
# weft: define  BLOCK_M = 32
# weft: define  BLOCK_N = 32
# weft: require D % 8 == 0 : strides of a descriptor are multiples of 16 bytes
# weft: require D <= 128
# weft: in      q    : f16[B, HQ, SQ, D] = normal
# weft: in      k, v : f16[B, HKV, SKV, D] = normal
# weft: out     out  : f16[B, HQ, SQ, D]
# weft: out     lse  : f32[B, HQ, SQ]
# weft: scalar  sm_scale : f32 = 1 / sqrt(D)
# weft: scalar  BLOCK_D : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: launch  attn_fwd<num_warps=2>(q, k, v, out, lse, sm_scale, HQ, HKV, SQ, SKV)
# weft:         grid(cdiv(SQ, BLOCK_M), B * HQ) block(64)
"""Attention in Triton with tensor descriptors. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def attn_fwd(
    Q,
    K,
    V,
    Out,
    LSE,
    sm_scale,
    H,
    H_KV,
    N_Q,
    N_KV,
    D: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """One program: BLOCK_M queries of one head."""
    start_m = tl.program_id(0)
    off_bh = tl.program_id(1)
    off_b = off_bh // H
    off_h = off_bh % H
    q_offset = off_bh.to(tl.int64) * N_Q * D
    kv_offset = (off_b * H_KV + off_h // (H // H_KV)).to(tl.int64) * N_KV * D

    q_desc = tl.make_tensor_descriptor(Q + q_offset, [N_Q, D], [D, 1], [BLOCK_M, BLOCK_D])
    k_desc = tl.make_tensor_descriptor(K + kv_offset, [N_KV, D], [D, 1], [BLOCK_N, BLOCK_D])
    v_desc = tl.make_tensor_descriptor(V + kv_offset, [N_KV, D], [D, 1], [BLOCK_N, BLOCK_D])
    o_desc = tl.make_tensor_descriptor(Out + q_offset, [N_Q, D], [D, 1], [BLOCK_M, BLOCK_D])

    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    m_i = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    qk_scale = sm_scale * 1.4426950408889634
    q = q_desc.load([start_m * BLOCK_M, 0])

    hi = N_KV
    if CAUSAL == 1:
        hi = tl.minimum(N_KV, (start_m + 1) * BLOCK_M)
    if CAUSAL == 2:
        hi = tl.minimum(N_KV, (start_m + 1) * BLOCK_M + N_KV - N_Q)

    for start_n in range(0, hi, BLOCK_N):
        k = k_desc.load([start_n, 0])
        qk = tl.dot(q, k.T) * qk_scale

        cols = start_n + offs_n
        mask = (cols < N_KV)[None, :]
        if CAUSAL == 1:
            mask = mask & (cols[None, :] <= offs_m[:, None])
        if CAUSAL == 2:
            mask = mask & (cols[None, :] <= offs_m[:, None] + N_KV - N_Q)
        qk = tl.where(mask, qk, -float("inf"))

        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        m_safe = tl.where(m_ij == -float("inf"), 0.0, m_ij)
        alpha = tl.exp2(m_i - m_safe)
        p = tl.exp2(qk - m_safe[:, None])
        l_i = l_i * alpha + tl.sum(p, 1)
        m_i = m_ij

        v = v_desc.load([start_n, 0])
        acc = acc * alpha[:, None]
        acc += tl.dot(p.to(v.dtype), v)

    empty = l_i == 0.0
    acc = acc / tl.where(empty, 1.0, l_i)[:, None]
    lse = tl.where(empty, -float("inf"), (m_i + tl.log2(l_i)) * 0.6931471805599453)
    tl.store(LSE + off_bh * N_Q + offs_m, lse, mask=offs_m < N_Q)
    o_desc.store([start_m * BLOCK_M, 0], acc.to(Out.dtype.element_ty))
