// A right kernel that was once reported wrong: `float acc[128] = {0.0f};` sets all 128 elements to zero.
//
//     O = softmax(Q Kᵀ · scale) V,   LSE = log Σ_n exp(Q Kᵀ · scale)
//
// In C and C++ the elements without an explicit initialiser are zero-initialised, so none is left undefined.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  WARPS = 1
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  zero_initialiser(q, k, v, o, lse, HKV, SQ, SKV, D, scale)
// weft:         grid(cdiv(SQ, 32 * WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_fp16.h>
#include <math_constants.h>

extern "C" __global__ void __launch_bounds__(32 * WARPS)
zero_initialiser(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                 half* __restrict__ o, float* __restrict__ lse, int HKV, int SQ, int SKV, int D, float scale) {
    assert(D <= 128);
    const int query = blockIdx.x * 32 * WARPS + threadIdx.x;
    if (query >= SQ) return;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    const size_t q_row = (static_cast<size_t>(b) * HQ + h) * SQ + query;
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);

    float acc[128] = {0.0f};
    float m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < SKV; ++key) {
        const size_t kv_row = (kv_head * SKV + key) * D;
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += __half2float(q[q_row * D + d]) * __half2float(k[kv_row + d]);
        s *= scale;
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        l = l * rescale + p;
        for (int d = 0; d < D; ++d) acc[d] = acc[d] * rescale + p * __half2float(v[kv_row + d]);
        m = m_new;
    }
    for (int d = 0; d < D; ++d) o[q_row * D + d] = __float2half_rn(acc[d] / l);
    lse[q_row] = m + logf(l);
}
