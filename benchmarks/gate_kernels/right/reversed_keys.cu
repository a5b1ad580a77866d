// Keys from the last visible one to the first, so that a causal kernel starts at the diagonal; sums are kept in
// double precision.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    from_the_diagonal<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
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

template <int D>
__global__ void __launch_bounds__(128)
from_the_diagonal(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // columns of a lane: lane, lane + 32 ...
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    double u[PER_LANE] = {}, l = 0.0;
    float m = -CUDART_INF_F;
    for (int key = visible_keys(query, SQ, SKV) - 1; key >= 0; --key) {
        const size_t at = (kv_head * SKV + key) * D;
        float products = 0.0f;
        for (int d = lane; d < D; d += 32) products += float(q[row * D + d]) * float(k[at + d]);
        const float s = warp_sum(products) * scale, m_new = fmaxf(m, s);
        const double rescale = expf(m - m_new), p = expf(s - m_new);
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) u[i] = u[i] * rescale + p * float(v[at + i * 32 + lane]);
        l = l * rescale + p;
        m = m_new;
    }
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(float(l > 0.0 ? u[i] / l : 0.0));
    if (lane == 0) lse[row] = l > 0.0 ? m + logf(float(l)) : -CUDART_INF_F;
}
