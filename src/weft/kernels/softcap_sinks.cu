// Fused attention with a soft cap, a sink per query head and a window, one warp per query.
//
//     S = cap · tanh(Q Kᵀ · scale / cap),   l = Σ_n exp(S + mask) + exp(sink),   O = exp(S + mask) V / l,   LSE = log l
//
// Idea      The online softmax of `scalar`. A sink is a logit without a value: a row starts with m = sink, l = 1, u = 0,
//           as if it had seen a first key whose value is 0. A sink of -inf has no weight: the first key multiplies that 1
//           by exp(-inf - s) = 0. The cap is applied before the mask, so a masked key is not -cap. Keys outside the
//           window are not read.
// History   The soft cap is that of Gemma 2; sinks that the model learns, next to windows, are those of gpt-oss.
// Levers    WARPS: queries per CTA.
// Supports  ELEMENT float, half, __nv_bfloat16 (arithmetic is fp32 throughout, O is rounded once);
//           any D, SQ, SKV ≥ 1; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           WINDOW_LEFT, WINDOW_RIGHT: how many keys before and, if CAUSAL is 0, after the diagonal it sees; -1 all.
//           SOFT_CAP: the cap; 0 none. The tanh is accurate (2 ulp) in every type.
//           A query that sees no key gets O = 0 and LSE = sink.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WINDOW_LEFT = -1
// weft: define  WINDOW_RIGHT = -1
// weft: define  SOFT_CAP = 20.0
// weft: define  WARPS = 4
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: in      sinks : f32[HQ] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  softcap_sinks<{D}>(q, k, v, sinks, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float CAP = SOFT_CAP;

static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");
static_assert(CAP >= 0.0f, "SOFT_CAP is positive, or 0 for none");

// A query sees the keys first_visible(query) ≤ key < visible_keys(query). The diagonal may be out of range.
__device__ __forceinline__ int diagonal(int query, int SQ, int SKV) { return CAUSAL == 1 ? query : query + SKV - SQ; }

__device__ __forceinline__ int first_visible(int query, int SQ, int SKV) {
    return WINDOW_LEFT < 0 ? 0 : max(0, diagonal(query, SQ, SKV) - WINDOW_LEFT);
}

__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0 && WINDOW_RIGHT < 0) return SKV;
    const int last = diagonal(query, SQ, SKV) + (CAUSAL == 0 ? WINDOW_RIGHT : 0);
    return max(0, min(SKV, last + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

__device__ __forceinline__ float capped(float s) {
    if constexpr (CAP > 0.0f) return CAP * tanhf(s / CAP);
    return s;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
softcap_sinks(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
              const float* __restrict__ sinks, ELEMENT* __restrict__ o, float* __restrict__ lse, int HKV, int SQ, int SKV,
              float scale) {
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
    float m = sinks[h], l = 1.0f;

    const int end = visible_keys(query, SQ, SKV);
    for (int key = first_visible(query, SQ, SKV); key < end; ++key) {
        const size_t row = (kv_head * SKV + key) * D;  // k, v at [b, kv head, key, 0]
        float products = 0.0f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) products += q_lane[i] * float(k[row + d]);
        }
        const float s = capped(warp_sum(products) * scale);  // the same bits in every lane
        const float m_new = fmaxf(m, s);                     // finite, so m - m_new is never inf - inf
        const float rescale = expf(m - m_new), p = expf(s - m_new);
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            if (d < D) u[i] = u[i] * rescale + p * float(v[row + d]);
        }
        l = l * rescale + p;
        m = m_new;
    }

    const float inverse = 1.0f / l;  // l ≥ 1: the largest of the sink and the scores has the weight 1
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        if (d < D) o[q_row * D + d] = ELEMENT(u[i] * inverse);
    }
    if (lane == 0) lse[q_row] = m + logf(l);
}
