# Triton with tensor descriptors made on the device, which the compiler lowers to plain accesses below sm_90; loads
# outside a descriptor give 0.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    CAUSAL = 0
# weft: define    BLOCK_M = 16
# weft: define    BLOCK_N = 16
# weft: require   (D == 16) + (D == 32) + (D == 64) + (D == 128) : a power of two
# weft: in        q    : bf16[B, HQ, SQ, D] = normal
# weft: in        k, v : bf16[B, HKV, SKV, D] = normal
# weft: out       o    : bf16[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: launch    descriptor<num_warps=1>(q, k, v, o, lse, B, HKV, SQ, SKV, scale)
# weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(32)
"""Attention in Triton, descriptor. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def descriptor(
    q,
    k,
    v,
    o,
    lse,
    B,
    HKV,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program: BLOCK_M queries of one head."""
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    q_head = (b * HQ + h).to(tl.int64)
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)
    first_query = tl.program_id(0) * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    q_in = tl.make_tensor_descriptor(q + q_head * SQ * D, [SQ, D], [D, 1], [BLOCK_M, D])
    k_in = tl.make_tensor_descriptor(k + kv_head * SKV * D, [SKV, D], [D, 1], [BLOCK_N, D])
    v_in = tl.make_tensor_descriptor(v + kv_head * SKV * D, [SKV, D], [D, 1], [BLOCK_N, D])
    o_out = tl.make_tensor_descriptor(o + q_head * SQ * D, [SQ, D], [D, 1], [BLOCK_M, D])
    q_tile = q_in.load([first_query, 0])
    visible = tl.minimum(queries + (1 if CAUSAL == 1 else 1 + SKV - SQ), SKV) if CAUSAL else queries * 0 + SKV
    u = tl.zeros((BLOCK_M, D), tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, SKV, BLOCK_N):
        k_tile = k_in.load([first, 0])
        v_tile = v_in.load([first, 0])
        s = tl.dot(q_tile, k_tile.T) * scale
        s = tl.where((first + tl.arange(0, BLOCK_N))[None, :] < visible[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)  # a row that has seen no key yet
        p = tl.exp(s - shift[:, None])
        rescale = tl.exp(m - shift)
        l = l * rescale + tl.sum(p, axis=1)
        u = tl.dot(p.to(v_tile.dtype), v_tile, u * rescale[:, None])
        m = m_new
    empty = l == 0.0
    o_out.store([first_query, 0], (u / tl.where(empty, 1.0, l)[:, None]).to(o.dtype.element_ty))
    tl.store(lse + q_head * SQ + queries, tl.where(empty, -float("inf"), m + tl.log(l)), mask=queries < SQ)
