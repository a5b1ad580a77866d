// One warp per query; a lane owns the keys lane, lane + 32 …, and a butterfly of shuffles merges the lanes' parts.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    butterfly<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(32)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

template <int D>
__global__ void __launch_bounds__(32)
butterfly(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    const int lane = threadIdx.x, query = blockIdx.x, h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t row = (size_t(b) * HQ + h) * SQ + query, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    float u[D] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int key = lane; key < visible_keys(query, SQ, SKV); key += 32) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k[(kv_head * SKV + key) * D + d]);
        s *= scale;
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        l = l * rescale + p;
        for (int d = 0; d < D; ++d) u[d] = u[d] * rescale + p * float(v[(kv_head * SKV + key) * D + d]);
        m = m_new;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, m, offset), top = fmaxf(m, other);
        const float shift = top == -CUDART_INF_F ? 0.0f : top;
        const float a = expf(m - shift), c = expf(other - shift);
        l = l * a + __shfl_xor_sync(0xffffffffu, l, offset) * c;
        for (int d = 0; d < D; ++d) u[d] = u[d] * a + __shfl_xor_sync(0xffffffffu, u[d], offset) * c;
        m = top;
    }
    for (int d = lane; d < D; d += 32) o[row * D + d] = T(l > 0.0f ? u[d] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
