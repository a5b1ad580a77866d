"""Triton kernels of order and counting: scans, sort, top-k, histogram, atomics, gather, inline assembly."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def row_cumsum(x_ptr, out_ptr, N, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    """Running sums of each row in fp32; the last sum of a block is carried into the next."""
    row = tl.program_id(0)
    carried = 0.0
    for block in range(0, tl.cdiv(N, BLOCK)):
        start = (tl.cdiv(N, BLOCK) - 1 - block) * BLOCK if REVERSE else block * BLOCK
        columns = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0).to(tl.float32)
        sums = tl.cumsum(x, axis=0, reverse=REVERSE) + carried
        tl.store(out_ptr + row * N + columns, sums.to(out_ptr.dtype.element_ty), mask=columns < N)
        carried += tl.sum(x, axis=0)


@triton.jit
def _after(a_left, b_left, a_right, b_right):
    """h → a_left · h + b_left, then h → a_right · h + b_right, as one step."""
    return a_left * a_right, a_right * b_left + b_right


@triton.jit
def linear_recurrence(a_ptr, b_ptr, h_ptr, T, C, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr):
    """h[t] = a[t] · h[t - 1] + b[t] down the columns of (T, C), as state-space models have it: T <= BLOCK_T."""
    steps = tl.arange(0, BLOCK_T)
    channels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    offsets = steps[:, None] * C + channels[None, :]
    inside = (steps[:, None] < T) & (channels[None, :] < C)
    a = tl.load(a_ptr + offsets, mask=inside, other=1.0).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    _, h = tl.associative_scan((a, b), 0, _after)
    tl.store(h_ptr + offsets, h.to(h_ptr.dtype.element_ty), mask=inside)


@triton.jit
def sort_rows(x_ptr, out_ptr, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DESCENDING: tl.constexpr):
    """Each row in order; N <= BLOCK_N, the rest is filled with what comes last."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    last = -float("inf") if DESCENDING else float("inf")
    mask = columns[None, :] < N
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=mask, other=last)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], tl.sort(x, descending=DESCENDING), mask=mask)


@triton.jit
def route_experts(logits_ptr, expert_ptr, weight_ptr, M, BLOCK_M: tl.constexpr, E: tl.constexpr, K: tl.constexpr):
    """The K best of E experts per token, as routers do it: sort (score bits, expert) as one integer; softmax of K."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    experts = tl.arange(0, E)
    x = tl.load(logits_ptr + rows[:, None] * E + experts[None, :], mask=rows[:, None] < M, other=0.0).to(tl.float32)
    bits = x.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (ordered.to(tl.int64) << 32) | (E - 1 - experts)[None, :].to(tl.int64)
    best = tl.topk(keys, K)
    scores = (best >> 32).to(tl.int32)
    scores = tl.where(scores < 0, scores ^ 0x7FFFFFFF, scores).to(tl.float32, bitcast=True)
    chosen = E - 1 - (best & 0xFFFFFFFF).to(tl.int32)
    slots = rows[:, None] * K + tl.arange(0, K)[None, :]
    inside = (rows[:, None] < M) & (tl.arange(0, K)[None, :] < K)
    tl.store(expert_ptr + slots, chosen, mask=inside)
    tl.store(weight_ptr + slots, tl.softmax(scores, 1), mask=inside)


@triton.jit
def histogram(x_ptr, counts_ptr, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    """counts[b] += how many x are b; a program counts its block and adds it by atomics."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0).to(tl.int32)
    tl.atomic_add(counts_ptr + tl.arange(0, BINS), tl.histogram(x, BINS, mask=inside))


@triton.jit
def atomic_statistics(x_ptr, total_ptr, extremes_ptr, bits_ptr, tickets_ptr, n, BLOCK: tl.constexpr):
    """Sum, extremes, bit sets and a ticket per program, all by atomics of one element."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    whole = x.to(tl.int32)
    tl.atomic_add(total_ptr, tl.sum(x, axis=0))
    tl.atomic_max(extremes_ptr, tl.max(tl.where(inside, x, -float("inf")), axis=0))
    tl.atomic_min(extremes_ptr + 1, tl.min(tl.where(inside, x, float("inf")), axis=0))
    bit = (offsets * 0 + 1) << (whole & 31)
    tl.atomic_or(bits_ptr + offsets % 3, bit, mask=inside)
    tl.atomic_xor(bits_ptr + 3 + offsets % 3, bit, mask=inside)
    tl.atomic_and(bits_ptr + 6 + offsets % 3, ~bit, mask=inside)
    ticket = tl.atomic_add(tickets_ptr, 1, sem="relaxed", scope="gpu")
    tl.store(tickets_ptr + 1 + ticket, tl.program_id(0))


@triton.jit
def gather_rows(x_ptr, index_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """out[row, i] = x[row, index[row, i]] inside the block, by tl.gather."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + columns, mask=columns < N)
    index = tl.load(index_ptr + row * N + columns, mask=columns < N, other=0)
    tl.store(out_ptr + row * N + columns, tl.gather(x, index, axis=0), mask=columns < N)


@triton.jit
def pack_e4m3(x_ptr, y_ptr, codes_ptr, rest_ptr, n, scale, BLOCK: tl.constexpr):
    """E4M3 codes of clamped x · scale by `cvt` on four at a time, and x's bits mixed with y's by `lop3`."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    y = tl.load(y_ptr + offsets, mask=inside, other=0)
    codes = tl.inline_asm_elementwise(
        asm="""
        {
            .reg .b16 low, high;
            cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
            cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
            mov.b32 $0, {low, high};
        }
        """,
        constraints="=r,r,r,r,r",
        args=[x * scale],
        dtype=tl.uint8,
        is_pure=True,
        pack=4,
    )
    low, mixed = tl.inline_asm_elementwise(
        asm="""
        and.b32 $0, $2, 0xFFFF;
        lop3.b32 $1, $2, $3, 0x55555555, 0x96;
        """,
        constraints="=&r,=r,r,r",
        args=[x.to(tl.int32, bitcast=True), y],
        dtype=(tl.int32, tl.int32),
        is_pure=True,
        pack=1,
    )
    tl.store(codes_ptr + offsets, codes, mask=inside)
    tl.store(rest_ptr + offsets, low + mixed, mask=inside)
