# weft: sizes   B=1 H=2 N=64 D=64
# weft: in      Q, K, V : f32[B, H, N, D] = normal
# weft: out     Out : f32[B, H, N, D]
# weft: scalar  sm_scale : f32 = 1 / sqrt(D)
# weft: scalar  PADDED : i32 = 16 * max(1, 2 * (D > 16), 4 * (D > 32), 8 * (D > 64))
# weft: lever   CAUSAL = 0 in 0, 1
# weft: launch  row_kernel<num_warps=1>(Q, K, V, Out, N, sm_scale) grid(N, B * H) block(32)
"""One program per query: the keys one after the other, with or without a causal mask."""

import triton
import triton.language as tl


@triton.jit
def row_kernel(Q, K, V, Out, N, sm_scale, D: tl.constexpr, PADDED: tl.constexpr, CAUSAL: tl.constexpr):
    row = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * N * D
    cols = tl.arange(0, PADDED)
    inside = cols < D
    q = tl.load(Q + head + row * D + cols, mask=inside, other=0.0)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros([PADDED], tl.float32)
    end = row + 1 if CAUSAL else N
    for j in range(0, end):
        k = tl.load(K + head + j * D + cols, mask=inside, other=0.0)
        s = tl.sum(q * k, 0) * sm_scale
        m_new = tl.maximum(m, s)
        p = tl.exp(s - m_new)
        alpha = tl.exp(m - m_new)
        l = l * alpha + p
        v = tl.load(V + head + j * D + cols, mask=inside, other=0.0)
        acc = acc * alpha + p * v
        m = m_new
    tl.store(Out + head + row * D + cols, acc / l, mask=inside)
