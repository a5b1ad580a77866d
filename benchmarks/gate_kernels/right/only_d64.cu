// A kernel for one head dimension: every lane owns the columns 2·lane and 2·lane + 1 of 64, and the launch lines say
// so.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: require   D == 64
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    only_d64(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

__global__ void __launch_bounds__(128)
only_d64(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32, D = 64;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    const float q0 = float(q[row * D + 2 * lane]) * scale, q1 = float(q[row * D + 2 * lane + 1]) * scale;
    float u0 = 0.0f, u1 = 0.0f, m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key) {
        const size_t at = (kv_head * SKV + key) * D + 2 * lane;
        const float s = warp_sum(q0 * float(k[at]) + q1 * float(k[at + 1]));
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        u0 = u0 * rescale + p * float(v[at]);
        u1 = u1 * rescale + p * float(v[at + 1]);
        l = l * rescale + p;
        m = m_new;
    }
    const float inverse = l > 0.0f ? 1.0f / l : 0.0f;
    o[row * D + 2 * lane] = T(u0 * inverse);
    o[row * D + 2 * lane + 1] = T(u1 * inverse);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
