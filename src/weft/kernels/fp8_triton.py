# All-FP8 attention in Triton: `fp8_mma` as operations on entire tiles.
#
#     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
#
# Idea      Q, K, V and P become E4M3, x ≈ code · step with step = absmax / 448 of what shares it:
#               Q   BLOCK_M queries     K   BLOCK_N keys, after K's mean over all keys was subtracted
#               V   all keys of a channel
#           and P · 2⁸, whose step is 2⁻⁸. Subtracting K's mean k̄ removes q·k̄ from every score of a row, which affects
#           only LSE; it is added there again. The softmax works in base 2, as in `fa_triton`.
#           Three launches: sums of K and largest magnitudes of V by chunk; codes; attention, which quantises Q itself.
# History   On Ada an FP8 mma keeps 13 fraction bits of its sum, so no more than FLUSH keys may be summed in it. Triton
#           rewrites u + tl.dot(p, v) into tl.dot(p, v, u), which leaves the entire sum to the tensor core; only a dot
#           with max_num_imprecise_acc is not rewritten. Triton's division is approximate unless div_rn is used,
#           and a step that differs by one bit gives other codes.
#           V's codes are stored transposed, with four keys in a word, the layout of 8-bit operands of mma.
# Levers    FLUSH: 64, or 0 to leave the entire sum to the tensor core (docs/fp8.md shows why not). SMOOTH: 1, or
#           0 to keep K's mean. BLOCK_M and BLOCK_N; with 128 keys the two halves of P are flushed one by one.
#           WARPS is num_warps of the attention, STAGES num_stages of its loop.
# Supports  ELEMENT float, half, __nv_bfloat16; any SQ, SKV ≥ 1; 1 ≤ D ≤ 128; HQ a multiple of HKV (grouped queries);
#           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
#           A query that sees no key gets O = 0 and LSE = -inf. A block whose largest magnitude is below 448 · 2⁻¹²⁶
#           counts as zero.
#
# weft: sizes     B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
# weft: define    ELEMENT = "half"
# weft: define    CAUSAL = 0
# weft: define    FLUSH = 64
# weft: define    SMOOTH = 1
# weft: define    BLOCK_M = 64
# weft: define    BLOCK_N = 64
# weft: define    WARPS = 4
# weft: define    STAGES = 2
# weft: scalar    PADDED : i32 = 32 * max(1, 2 * (D > 32), 4 * (D > 64))
# weft: scalar    scale : f32 = 1 / sqrt(D)
# weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
# weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
# weft: workspace k_sum, v_max : f32[B, HKV, cdiv(SKV, 128), D]
# weft: workspace k_code : e4m3[B, HKV, cdiv(SKV, BLOCK_N) * BLOCK_N, PADDED]
# weft: workspace v_code : e4m3[B, HKV, PADDED, cdiv(SKV, BLOCK_N) * BLOCK_N]
# weft: workspace k_step : f32[B, HKV, cdiv(SKV, BLOCK_N)]
# weft: workspace k_mean, v_step : f32[B, HKV, D]
# weft: out       o    : ELEMENT[B, HQ, SQ, D]
# weft: out       lse  : f32[B, HQ, SQ]
# weft: launch    survey<num_warps={PADDED // 32}>(k, v, k_sum, v_max, SKV)
# weft:           grid(cdiv(SKV, 128), HKV, B) block(PADDED)
# weft: launch    quantise<num_warps=4>(k, v, k_sum, v_max, k_code, v_code, k_step, k_mean, v_step, SKV)
# weft:           grid(cdiv(SKV, BLOCK_N), HKV, B) block(128)
# weft: launch    fp8_triton<num_warps={WARPS}>(q, k_code, v_code, k_step, k_mean, v_step, o, lse, HKV, SQ, SKV, scale)
# weft:           grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
"""All-FP8 attention in Triton: the rung `fp8_triton`. A jitted function has no Python types."""
# mypy: ignore-errors

import triton
import triton.language as tl

CHUNK = tl.constexpr(128)  # keys surveyed by one program
FLUSH_KEYS = tl.constexpr(64)
LARGEST = tl.constexpr(448.0)
P_SCALE = tl.constexpr(256.0)
ZERO_BELOW = tl.constexpr(448.0 * 2.0**-126)
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def step_of(absmax):
    """Return absmax / 448, or 1 for what counts as zero, so that it and its inverse are normal numbers."""
    return tl.where(absmax < ZERO_BELOW, 1.0, tl.div_rn(absmax, tl.full(absmax.shape, LARGEST, tl.float32)))


@triton.jit
def inverse_of(x):
    """Return 1 / x, rounded to nearest."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)


@triton.jit
def survey(k, v, k_sum, v_max, SKV, D: tl.constexpr, PADDED: tl.constexpr, SMOOTH: tl.constexpr):
    """Write k_sum[chunk][d] = Σ_n k[n][d], key after key, and v_max[chunk][d] = max_n |v[n][d]| over a chunk's keys."""
    chunk, chunks = tl.program_id(0), tl.num_programs(0)
    kv_head = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)  # [b, kv head]
    columns = tl.arange(0, PADDED)
    inside = columns < D
    total = tl.zeros((PADDED,), tl.float32)
    largest = tl.zeros((PADDED,), tl.float32)
    for key in tl.range(chunk * CHUNK, min(SKV, (chunk + 1) * CHUNK), loop_unroll_factor=8):
        at = (kv_head * SKV + key) * D + columns
        if SMOOTH:
            total += tl.load(k + at, mask=inside, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(tl.load(v + at, mask=inside, other=0.0).to(tl.float32)))
    to = (kv_head * chunks + chunk) * D + columns
    tl.store(k_sum + to, total, mask=inside)
    tl.store(v_max + to, largest, mask=inside)


@triton.jit
def quantise(
    k,
    v,
    k_sum,
    v_max,
    k_code,
    v_code,
    k_step,
    k_mean,
    v_step,
    SKV,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Write the codes of BLOCK_N keys. K's mean is rounded to bf16 before it is subtracted; any vector is valid."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    kv_head = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)  # [b, kv head]
    columns = tl.arange(0, PADDED)
    total = tl.zeros((PADDED,), tl.float32)
    largest = tl.zeros((PADDED,), tl.float32)
    chunks = tl.cdiv(SKV, CHUNK)
    for chunk in range(chunks):
        at = (kv_head * chunks + chunk) * D + columns
        total += tl.load(k_sum + at, mask=columns < D, other=0.0)
        largest = tl.maximum(largest, tl.load(v_max + at, mask=columns < D, other=0.0))
    count = tl.full((PADDED,), 0, tl.float32) + SKV
    mean = tl.div_rn(total, count).to(tl.bfloat16).to(tl.float32)
    channel_step = step_of(largest)
    if block == 0:
        tl.store(k_mean + kv_head * D + columns, mean, mask=columns < D)
        tl.store(v_step + kv_head * D + columns, channel_step, mask=columns < D)

    # Keys and channels beyond the end are zero.
    keys = block * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (keys < SKV)[:, None] & (columns < D)[None, :]
    rows = (kv_head * SKV + keys)[:, None] * D + columns[None, :]
    centred = tl.load(k + rows, mask=inside, other=0.0).to(tl.float32) - mean[None, :]
    centred = tl.where(inside, centred, 0.0)
    step = step_of(tl.max(tl.abs(centred)))
    tl.store(k_step + kv_head * blocks + block, step)
    k_rows = (kv_head * blocks * BLOCK_N + keys)[:, None] * PADDED + columns[None, :]
    tl.store(k_code + k_rows, (centred * inverse_of(step)).to(tl.float8e4nv))

    scaled = tl.load(v + rows, mask=inside, other=0.0).to(tl.float32) * inverse_of(channel_step)[None, :]
    v_rows = (kv_head * PADDED + columns)[:, None] * (blocks * BLOCK_N) + keys[None, :]
    tl.store(v_code + v_rows, scaled.to(tl.float8e4nv).T)


@triton.jit
def halves(p):
    """Return the first 64 and the last 64 columns of 128."""
    return p.reshape(p.shape[0], 2, FLUSH_KEYS).permute(0, 2, 1).split()


@triton.jit
def attend(
    u,
    m,
    l,
    q,
    k_head,
    v_head,
    k_steps,
    visible,
    q_factor,
    padded,
    begin,
    end,
    PADDED: tl.constexpr,
    FLUSH: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return U, m and l after the keys [begin, end); a query sees the keys below `visible`, or all if not MASKED."""
    columns, keys = tl.arange(0, PADDED), tl.arange(0, BLOCK_N)
    for first_key in tl.range(begin, end, BLOCK_N, num_stages=STAGES):
        k = tl.load(k_head + (first_key + keys)[:, None] * PADDED + columns[None, :])
        s = tl.dot(q, k.T) * (q_factor * tl.load(k_steps + first_key // BLOCK_N))
        if MASKED:
            s = tl.where((first_key + keys)[None, :] < visible[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        # A row that has seen no key yet: with 0 in the place of -inf every power is 2^-inf = 0, never NaN.
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.math.exp2(s - safe[:, None])
        rescale = tl.math.exp2(m - safe)
        l = l * rescale + tl.sum(p, axis=1)
        codes = (p * P_SCALE).to(tl.float8e4nv)
        u = u * rescale[:, None]
        # The tensor core sums FLUSH keys from zero; the addition to U is in fp32.
        if FLUSH == 0:
            u = tl.dot(codes, tl.load(v_head + columns[None, :] * padded + (first_key + keys)[:, None]), u)
        elif BLOCK_N == FLUSH_KEYS:
            v = tl.load(v_head + columns[None, :] * padded + (first_key + keys)[:, None])
            u = u + tl.dot(codes, v, max_num_imprecise_acc=FLUSH)
        else:
            left, right = halves(codes)
            v_left = v_head + columns[None, :] * padded + (first_key + tl.arange(0, FLUSH_KEYS))[:, None]
            u = u + tl.dot(left, tl.load(v_left), max_num_imprecise_acc=FLUSH)
            u = u + tl.dot(right, tl.load(v_left + FLUSH_KEYS), max_num_imprecise_acc=FLUSH)
        m = m_new
    return u, m, l


@triton.jit
def fp8_triton(
    q,
    k_code,
    v_code,
    k_step,
    k_mean,
    v_step,
    o,
    lse,
    HKV,
    SQ,
    SKV,
    scale,
    D: tl.constexpr,
    PADDED: tl.constexpr,
    CAUSAL: tl.constexpr,
    FLUSH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute BLOCK_M queries of one head in one program."""
    tl.static_assert(D <= 128, "D is 1 to 128")
    tl.static_assert(BLOCK_N == 64 or BLOCK_N == 128, "BLOCK_N is 64 or 128")
    tl.static_assert(FLUSH == 0 or FLUSH == 64, "FLUSH is 64 keys or 0 (never)")
    tl.static_assert(CAUSAL >= 0 and CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)")
    h, b, HQ = tl.program_id(1), tl.program_id(2), tl.num_programs(1)
    q_head = (b * HQ + h).to(tl.int64)  # [b, h]
    kv_head = (b * HKV + h // (HQ // HKV)).to(tl.int64)  # HQ / HKV query heads share [b, kv head]
    first_query = tl.program_id(0) * BLOCK_M
    queries = first_query + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, PADDED)
    inside = (queries < SQ)[:, None] & (columns < D)[None, :]
    rows = queries[:, None] * D + columns[None, :]
    q_tile = tl.load(q + q_head * SQ * D + rows, mask=inside, other=0.0).to(tl.float32)
    q_step = step_of(tl.max(tl.abs(q_tile)))
    q_codes = (q_tile * inverse_of(q_step)).to(tl.float8e4nv)
    mean = tl.load(k_mean + kv_head * D + columns, mask=columns < D, other=0.0)
    # An fma ends in a sum, so the compiler cannot merge the product into the additions between lanes: two lanes would
    # round a + b and b + a differently, and write both to the same place.
    mean_score = tl.sum(tl.fma(q_tile, mean[None, :], 0.0), axis=1)

    # The keys that a query sees are always a prefix. The first query sees the fewest, the last one the most.
    if CAUSAL == 0:
        visible = tl.full((BLOCK_M,), 0, tl.int32) + SKV
        whole, end = SKV // BLOCK_N * BLOCK_N, SKV
    else:
        diagonal = 1 if CAUSAL == 1 else 1 + SKV - SQ
        visible = tl.minimum(queries + diagonal, SKV)
        whole = tl.maximum(tl.minimum(first_query + diagonal, SKV), 0) // BLOCK_N * BLOCK_N
        end = tl.maximum(tl.minimum(tl.minimum(first_query + BLOCK_M, SQ) - 1 + diagonal, SKV), 0)

    u = tl.zeros((BLOCK_M, PADDED), tl.float32)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    blocks = tl.cdiv(SKV, BLOCK_N)
    padded = blocks * BLOCK_N
    k_head, v_head = k_code + kv_head * padded * PADDED, v_code + kv_head * PADDED * padded
    k_steps, q_factor = k_step + kv_head * blocks, q_step * (scale * LOG2_E)
    u, m, l = attend(
        u,
        m,
        l,
        q_codes,
        k_head,
        v_head,
        k_steps,
        visible,
        q_factor,
        padded,
        0,
        whole,
        PADDED,
        FLUSH,
        BLOCK_N,
        STAGES,
        False,
    )
    u, m, l = attend(
        u,
        m,
        l,
        q_codes,
        k_head,
        v_head,
        k_steps,
        visible,
        q_factor,
        padded,
        whole,
        end,
        PADDED,
        FLUSH,
        BLOCK_N,
        STAGES,
        True,
    )

    # O = U / l · step_v / 2⁸, LSE = (m + log₂ l) · ln 2 + q·k̄ · scale. l = 0 means that no key is visible.
    empty = l == 0.0
    inverse = tl.where(empty, 0.0, inverse_of(l * P_SCALE))
    channel_step = tl.load(v_step + kv_head * D + columns, mask=columns < D, other=0.0)
    o_tile = u * inverse[:, None] * channel_step[None, :]
    tl.store(o + q_head * SQ * D + rows, o_tile.to(o.dtype.element_ty), mask=inside)
    log_sum = tl.where(empty, -float("inf"), (m + tl.log2(l)) * LN_2 + mean_score * scale)
    tl.store(lse + q_head * SQ + queries, log_sum, mask=queries < SQ)
