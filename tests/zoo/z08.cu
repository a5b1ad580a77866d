// One lane per query: no lane needs another. Wrong with BUG = 1, which keeps a warp reduction from the kernel before it.
//
//     O = softmax(Q Kᵀ · scale) V,   LSE = log Σ_n exp(Q Kᵀ · scale)
//
// Where 32 lanes share one dot product, each has a part of it and the warp sums the parts. Here a lane has the whole dot
// product of one query; with BUG the warp still sums, over 32 different queries.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  BUG = 1
// weft: define  WARPS = 1
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  query_per_lane<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, 32 * WARPS), HQ, B) block(32 * WARPS)

#include <cuda_fp16.h>
#include <math_constants.h>

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
query_per_lane(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
               half* __restrict__ o, float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    const int query = blockIdx.x * 32 * WARPS + threadIdx.x;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    const size_t q_row = (static_cast<size_t>(b) * HQ + h) * SQ + min(query, SQ - 1);  // spare lanes repeat the last row
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);

    float q_row_values[D], u[D], m = -CUDART_INF_F, l = 0.0f;
#pragma unroll
    for (int d = 0; d < D; ++d) {
        q_row_values[d] = __half2float(q[q_row * D + d]);
        u[d] = 0.0f;
    }
    for (int key = 0; key < SKV; ++key) {
        const size_t kv_row = (kv_head * SKV + key) * D;
        float s = 0.0f;
#pragma unroll
        for (int d = 0; d < D; ++d) s += q_row_values[d] * __half2float(k[kv_row + d]);
#if BUG
        s = warp_sum(s) * scale;  // 32 lanes hold 32 queries, not 32 parts of one
#else
        s *= scale;
#endif
        const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
        l = l * rescale + p;
#pragma unroll
        for (int d = 0; d < D; ++d) u[d] = u[d] * rescale + p * __half2float(v[kv_row + d]);
        m = m_new;
    }
    if (query >= SQ) return;
#pragma unroll
    for (int d = 0; d < D; ++d) o[q_row * D + d] = __float2half_rn(u[d] / l);
    lse[q_row] = m + logf(l);
}
