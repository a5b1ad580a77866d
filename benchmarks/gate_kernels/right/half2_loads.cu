// Pairs: every load of Q, K and V is a half2 that becomes a float2, and O is stored as half2; sums are fp32.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: require   D % 2 == 0 : rows are whole pairs
// weft: in        q    : f16[B, HQ, SQ, D] = normal
// weft: in        k, v : f16[B, HKV, SKV, D] = normal
// weft: out       o    : f16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    half2_loads<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_fp16.h>
#include <math_constants.h>

using T = half;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <int D>
__global__ void __launch_bounds__(128)
half2_loads(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PAIRS = (D / 2 + 31) / 32;  // pairs of a lane: lane, lane + 32 ...
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    const half2* const q2 = reinterpret_cast<const half2*>(q + row * D);
    float2 ql[PAIRS], u[PAIRS];
    for (int i = 0; i < PAIRS; ++i) {
        ql[i] = i * 32 + lane < D / 2 ? __half22float2(q2[i * 32 + lane]) : make_float2(0.0f, 0.0f);
        u[i] = make_float2(0.0f, 0.0f);
    }
    float m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key) {
        const half2* const k2 = reinterpret_cast<const half2*>(k + (kv_head * SKV + key) * D);
        const half2* const v2 = reinterpret_cast<const half2*>(v + (kv_head * SKV + key) * D);
        float s = 0.0f;
        for (int i = 0; i < PAIRS; ++i)
            if (i * 32 + lane < D / 2) {
                const float2 c = __half22float2(k2[i * 32 + lane]);
                s += ql[i].x * c.x + ql[i].y * c.y;
            }
        s = warp_sum(s) * scale;
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        for (int i = 0; i < PAIRS; ++i)
            if (i * 32 + lane < D / 2) {
                const float2 c = __half22float2(v2[i * 32 + lane]);
                u[i] = make_float2(u[i].x * rescale + p * c.x, u[i].y * rescale + p * c.y);
            }
        l = l * rescale + p;
        m = m_new;
    }
    const float inverse = l > 0.0f ? 1.0f / l : 0.0f;
    half2* const o2 = reinterpret_cast<half2*>(o + row * D);
    for (int i = 0; i < PAIRS; ++i)
        if (i * 32 + lane < D / 2) o2[i * 32 + lane] = __floats2half2_rn(u[i].x * inverse, u[i].y * inverse);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
