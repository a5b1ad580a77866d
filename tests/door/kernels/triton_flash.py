# weft: sizes   B=1 H=2 N=64 D=64
# weft: in      q, k, v : f16[B, H, N, D] = normal
# weft: out     o : f16[B, H, N, D]
# weft: launch  flash_kernel<num_warps=4>(q, k, v, o, N, 1 / sqrt(D)) grid(cdiv(N, 32), B * H) block(128)
# weft: define  BLOCK = 32
# weft: require (D == 16) + (D == 32) + (D == 64) + (D == 128) : tl.arange takes powers of two
"""A flash-attention kernel as the tutorials have it: tiles of 32 rows and 32 keys."""

import triton
import triton.language as tl


@triton.jit
def flash_kernel(q_ptr, k_ptr, v_ptr, o_ptr, N, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * N * D
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.arange(0, D)
    q = tl.load(q_ptr + head + rows[:, None] * D + cols[None, :], mask=rows[:, None] < N, other=0.0)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, N, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + head + keys[:, None] * D + cols[None, :], mask=keys[:, None] < N, other=0.0)
        v = tl.load(v_ptr + head + keys[:, None] * D + cols[None, :], mask=keys[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        s = tl.where(keys[None, :] < N, s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(tl.float16), v)
        m = m_new
    tl.store(
        o_ptr + head + rows[:, None] * D + cols[None, :], (acc / l[:, None]).to(tl.float16), mask=rows[:, None] < N
    )
