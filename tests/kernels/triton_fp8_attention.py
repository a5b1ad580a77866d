"""Flash attention on E4M3 operands: both products on FP8 tensor cores, softmax in fp32."""

# mypy: ignore-errors

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def flash_attention_fp8(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    S,
    q_scale,
    k_scale,
    v_scale,
    softmax_scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """O over (H, S, D) from codes with one scale each; V comes transposed (H, D, S), P is rounded to E4M3 times 256."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    queries = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q_tile = q_ptr + head * S * D + queries[:, None] * D + dims[None, :]
    q = tl.load(q_tile, mask=queries[:, None] < S, other=0.0)
    to_log2 = q_scale * k_scale * softmax_scale * LOG2_E
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    l = tl.zeros((BLOCK_M,), dtype=tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    end = min(S, (tile + 1) * BLOCK_M) if CAUSAL else S
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + head * S * D + dims[:, None] + keys[None, :] * D, mask=keys[None, :] < S, other=0.0)
        s = tl.dot(q, k) * to_log2
        visible = keys[None, :] < S
        if CAUSAL:
            visible = visible & (keys[None, :] <= queries[:, None])
        s = tl.where(visible, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.math.exp2(s - m_new[:, None])
        rescale = tl.math.exp2(m - m_new)
        l = l * rescale + tl.sum(p, axis=1)
        v = tl.load(v_ptr + head * D * S + dims[None, :] * S + keys[:, None], mask=keys[:, None] < S, other=0.0)
        acc = acc * rescale[:, None] + tl.dot((p * 256.0).to(v.dtype), v)
        m = m_new
    o = acc * (v_scale / 256.0) / l[:, None]
    tl.store(
        o_ptr + head * S * D + queries[:, None] * D + dims[None, :],
        o.to(o_ptr.dtype.element_ty),
        mask=queries[:, None] < S,
    )
