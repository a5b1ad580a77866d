// Split-K attention: the keys are cut into SPLITS parts that run in parallel; a second kernel merges their results.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      With few queries and many keys, one CTA per block of queries leaves most of the chip idle. Softmax is a
//           sum and may be cut anywhere: part i stores, per query, its unnormalised output U_i, its largest score m_i
//           and its sum of weights l_i, in fp32. With M = max_i m_i
//               U = Σ_i exp(m_i - M) · U_i,   l = Σ_i exp(m_i - M) · l_i,   O = U / l,   LSE = M + log l
//           A part without a visible key is (0, -inf, 0) and has the weight exp(-inf - M) = 0. If all are, M = -inf and
//           nothing is merged: exp(-inf - -inf) would be NaN.
// History   The split of Flash-Decoding. U_i is NOT divided by l_i; a merge that weighs it with l_i · exp(m_i - M)
//           counts l_i twice and is right for one part only. A part runs as in `scalar`, one warp per query, which is
//           good for few queries; with SPLITS = 1 the two rungs give the same bits.
// Levers    SPLITS; WARPS: queries per CTA.
// Supports  ELEMENT float, half, __nv_bfloat16 (arithmetic is fp32 throughout, O is rounded once);
//           any D, SQ, SKV ≥ 1; any SPLITS ≥ 1, even more than keys; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=5 SKV=300 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    SPLITS = 4
// weft: define    WARPS = 4
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace part_u : f32[B, HQ, SPLITS, SQ, D]
// weft: workspace part_m, part_l : f32[B, HQ, SPLITS, SQ]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    split_k_partial<{D}>(q, k, v, part_u, part_m, part_l, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, WARPS), HQ, B * SPLITS) block(32 * WARPS)
// weft: launch    split_k_reduce<{D}>(part_u, part_m, part_l, o, lse, SQ)
// weft:           grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
static_assert(SPLITS >= 1, "there is at least one part");
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// The row of part_u, part_m and part_l at [b, h, split, query]. Both kernels use this function, so they agree.
__device__ __forceinline__ size_t part_row(int b, int h, int split, int query, int SQ) {
    return ((static_cast<size_t>(b) * gridDim.y + h) * SPLITS + split) * SQ + query;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
split_k_partial(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
                float* __restrict__ part_u, float* __restrict__ part_m, float* __restrict__ part_l, int HKV, int SQ,
                int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // a lane's columns: lane, lane + 32, lane + 64 …
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;

    const int HQ = gridDim.y, h = blockIdx.y, b = blockIdx.z / SPLITS, split = blockIdx.z % SPLITS;
    assert(HQ % HKV == 0);
    const size_t q_row = (static_cast<size_t>(b) * HQ + h) * SQ + query;   // [b, h, query]
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]
    const int keys_per_split = (SKV + SPLITS - 1) / SPLITS;
    const int first_key = split * keys_per_split;  // from SKV on if there are more parts than keys
    const int end = min(first_key + keys_per_split, visible_keys(query, SQ, SKV));

    float q_lane[PER_LANE], u[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        q_lane[i] = d < D ? float(q[q_row * D + d]) : 0.0f;
        u[i] = 0.0f;
    }
    float m = -CUDART_INF_F, l = 0.0f;

    for (int key = first_key; key < end; ++key) {
        const size_t row = (kv_head * SKV + key) * D;  // k, v at [b, kv head, key, 0]
        float products = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) products += q_lane[i] * float(k[row + d]);
        }
        const float s = warp_sum(products) * scale;  // the same bits in every lane
        const float m_new = fmaxf(m, s);             // finite from the first key on, so m - m_new is never inf - inf
        const float rescale = expf(m - m_new), p = expf(s - m_new);
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) u[i] = u[i] * rescale + p * float(v[row + d]);
        }
        l = l * rescale + p;
        m = m_new;
    }

    const size_t part = part_row(b, h, split, query, SQ);
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        if (d < D) part_u[part * D + d] = u[i];
    }
    if (lane == 0) {
        part_m[part] = m;
        part_l[part] = l;
    }
}

// One warp per query; the lanes share the columns.
template <int D>
__global__ void __launch_bounds__(32 * WARPS)
split_k_reduce(const float* __restrict__ part_u, const float* __restrict__ part_m, const float* __restrict__ part_l,
               ELEMENT* __restrict__ o, float* __restrict__ lse, int SQ) {
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;
    const int b = blockIdx.z, h = blockIdx.y;
    const size_t row = (static_cast<size_t>(b) * gridDim.y + h) * SQ + query;  // [b, h, query]

    float m = -CUDART_INF_F;
    for (int split = 0; split < SPLITS; ++split) m = fmaxf(m, part_m[part_row(b, h, split, query, SQ)]);
    if (m == -CUDART_INF_F) {
        for (int d = lane; d < D; d += 32) o[row * D + d] = ELEMENT(0.0f);
        if (lane == 0) lse[row] = -CUDART_INF_F;
        return;
    }

    float l = 0.0f;
    for (int split = 0; split < SPLITS; ++split) {
        const size_t part = part_row(b, h, split, query, SQ);
        l += expf(part_m[part] - m) * part_l[part];
    }
    const float inverse = 1.0f / l;
    for (int d = lane; d < D; d += 32) {
        float u = 0.0f;
        for (int split = 0; split < SPLITS; ++split) {
            const size_t part = part_row(b, h, split, query, SQ);
            u += expf(part_m[part] - m) * part_u[part * D + d];
        }
        o[row * D + d] = ELEMENT(u * inverse);
    }
    if (lane == 0) lse[row] = m + logf(l);
}
