// Fused attention with an online softmax, one warp per query: the trusted baseline.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      The scores stay in registers: a warp reads the keys once and keeps, per query, the largest score so far
//           m, the sum of weights l and the unnormalised output u. A new key with score s and value v gives
//               m' = max(m, s),   r = exp(m - m'),   p = exp(s - m'),   l' = l · r + p,   u' = u · r + p · v
//           and at the end O = u / l. The lanes share the head dimension; five shuffles per key sum their products.
// History   Online softmax is Milakov and Gimelshein's (2018). It has no tensor cores, no shared memory and no
//           barrier, so few errors are possible, and the other rungs are compared with it. But every query reads all
//           of K and V again. `fa1` shares those reads.
// Levers    WARPS: queries per CTA.
// Supports  ELEMENT float, half, __nv_bfloat16 (arithmetic is fp32 throughout, O is rounded once);
//           any D, SQ, SKV ≥ 1; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WARPS = 4
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  scalar_attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
scalar_attention(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
                 ELEMENT* __restrict__ o, float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // a lane's columns: lane, lane + 32, lane + 64 …
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;

    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t q_row = (static_cast<size_t>(b) * HQ + h) * SQ + query;  // row of q, o and lse: [b, h, query]
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]

    float q_lane[PER_LANE], u[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        q_lane[i] = d < D ? float(q[q_row * D + d]) : 0.0f;
        u[i] = 0.0f;
    }
    float m = -CUDART_INF_F, l = 0.0f;

    const int end = visible_keys(query, SQ, SKV);
    for (int key = 0; key < end; ++key) {
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

    const float inverse = l > 0.0f ? 1.0f / l : 0.0f;  // l = 0: no visible key
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        if (d < D) o[q_row * D + d] = ELEMENT(u[i] * inverse);
    }
    if (lane == 0) lse[q_row] = m + logf(l);  // -inf + log 0 = -inf
}
