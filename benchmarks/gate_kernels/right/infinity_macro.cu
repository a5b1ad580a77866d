// One lane per query with its whole output row in registers; -INFINITY is written without <math.h>, which nvcc
// includes by itself.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    infinity_macro<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 32), HQ, B) block(32)
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

template <int D>
__global__ void __launch_bounds__(32)
infinity_macro(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    const int query = blockIdx.x * 32 + threadIdx.x;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float u[D], m = -INFINITY, l = 0.0f;
    for (int d = 0; d < D; ++d) u[d] = 0.0f;
    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key) {
        const size_t at = (kv_head * SKV + key) * D;
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k[at + d]);
        s *= scale;
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        for (int d = 0; d < D; ++d) u[d] = u[d] * rescale + p * float(v[at + d]);
        l = l * rescale + p;
        m = m_new;
    }
    for (int d = 0; d < D; ++d) o[row * D + d] = T(l > 0.0f ? u[d] / l : 0.0f);
    lse[row] = l > 0.0f ? m + logf(l) : -INFINITY;
}
