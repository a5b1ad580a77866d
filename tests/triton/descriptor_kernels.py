"""Triton kernels with tensor descriptors, which are TMA copies from sm_90 on: made by the host, or by the kernel."""

import triton
import triton.language as tl


@triton.jit
def _attend(q, k, v, head, rows, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
            CAUSAL: tl.constexpr, SPECIALISE: tl.constexpr):  # fmt: skip
    """Attention of BM rows of one head, with the online softmax."""
    tile = q.load([head, rows, 0]).reshape(BM, D)
    top = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, D], tl.float32)
    end = length
    if CAUSAL:
        end = tl.minimum(rows + BM, length)
    for start in tl.range(0, end, BN, warp_specialize=SPECIALISE):
        keys = k.load([head, start, 0]).reshape(BN, D)
        scores = tl.dot(tile, keys.T) * scale
        at = start + tl.arange(0, BN)
        seen = at[None, :] < length
        if CAUSAL:
            seen = seen & (at[None, :] <= (rows + tl.arange(0, BM))[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weights, 1)
        out = out * shrink[:, None]
        out = tl.dot(weights.to(tile.dtype), v.load([head, start, 0]).reshape(BN, D), out)
        top = higher
    return out / total[:, None]


@triton.jit
def attention_host(q, k, v, o, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                   CAUSAL: tl.constexpr):  # fmt: skip
    rows, head = tl.program_id(0) * BM, tl.program_id(1)
    out = _attend(q, k, v, head, rows, length, scale, BM, BN, D, CAUSAL, False)
    o.store([head, rows, 0], out.to(o.dtype).reshape(1, BM, D))


@triton.jit
def attention_device(qp, kp, vp, op, heads, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                     CAUSAL: tl.constexpr, SPECIALISE: tl.constexpr):  # fmt: skip
    q = tl.make_tensor_descriptor(qp, [heads, length, D], [length * D, D, 1], [1, BM, D])
    k = tl.make_tensor_descriptor(kp, [heads, length, D], [length * D, D, 1], [1, BN, D])
    v = tl.make_tensor_descriptor(vp, [heads, length, D], [length * D, D, 1], [1, BN, D])
    o = tl.make_tensor_descriptor(op, [heads, length, D], [length * D, D, 1], [1, BM, D])
    rows, head = tl.program_id(0) * BM, tl.program_id(1)
    out = _attend(q, k, v, head, rows, length, scale, BM, BN, D, CAUSAL, SPECIALISE)
    o.store([head, rows, 0], out.to(o.dtype).reshape(1, BM, D))


@triton.jit
def matmul_host(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b, where b is given as rows of columns (n, k)."""
    rows, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([rows, k]), b.load([columns, k]).T, total)
    c.store([rows, columns], total.to(c.dtype))


@triton.jit
def matmul_persistent(ap, bp, cp, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                      PROGRAMS: tl.constexpr, SPECIALISE: tl.constexpr):  # fmt: skip
    """The same with descriptors made by the kernel; each program computes several tiles."""
    a = tl.make_tensor_descriptor(ap, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(bp, [N, K], [K, 1], [BN, BK])
    c = tl.make_tensor_descriptor(cp, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS, warp_specialize=SPECIALISE):
        rows, columns = tile // across * BM, tile % across * BN
        total = tl.zeros([BM, BN], tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(a.load([rows, k]), b.load([columns, k]).T, total)
        c.store([rows, columns], total.to(c.dtype))


@triton.jit
def reduce_tiles(x, y, BM: tl.constexpr, BN: tl.constexpr):
    """Add the tiles of x, one above the other, into the first rows of y."""
    at = tl.program_id(0)
    y.atomic_add([0, 0], x.load([at * BM, 0]))


@triton.jit
def gather_rows(x, rows, y, BM: tl.constexpr, BN: tl.constexpr):
    chosen = tl.load(rows + tl.arange(0, BM))
    y.store([0, 0], x.gather(chosen, 0))


@triton.jit
def double_boxes(x, y, B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr):
    """y = 2 x of a tensor of three dimensions, the last boxes of which reach outside."""
    at = [tl.program_id(0) * B0, tl.program_id(1) * B1, tl.program_id(2) * B2]
    box = x.load(at)
    y.store(at, box + box)


@triton.jit
def scaled_dot(ap, sp, bp, tp, cp, K: tl.constexpr, FORMAT: tl.constexpr, PACK: tl.constexpr):
    """c = a b of 128 x 64 elements with a scale of 8 bits for every 32 of them; `PACK` elements in a byte."""
    rows, columns, k = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, K // PACK)
    a = tl.load(ap + rows[:, None] * (K // PACK) + k[None, :])
    b = tl.load(bp + columns[None, :] * (K // PACK) + k[:, None])
    s = tl.load(sp + rows[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    t = tl.load(tp + columns[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    total = tl.dot_scaled(a, s, FORMAT, b, t, FORMAT)
    tl.store(cp + rows[:, None] * 64 + columns[None, :], total)
