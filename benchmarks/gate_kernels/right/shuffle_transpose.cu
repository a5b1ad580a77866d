// A warp transposes 32 x 32 blocks of K by shuffles: rows are loaded with one column per lane, and five exchange
// steps leave one key per lane, which then sums its score alone.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    shuffle_transpose<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(32)
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

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

// r[i] of lane j becomes r[j] of lane i.
__device__ __forceinline__ void transpose(float (&r)[32], int lane) {
#pragma unroll
    for (int w = 16; w > 0; w /= 2)
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if ((i & w) == 0) {
                const float other = __shfl_xor_sync(0xffffffffu, lane & w ? r[i] : r[i | w], w);
                (lane & w ? r[i] : r[i | w]) = other;
            }
}

template <int D>
__global__ void __launch_bounds__(32)
shuffle_transpose(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    const int lane = threadIdx.x, query = blockIdx.x;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    const int end = visible_keys(query, SQ, SKV);
    for (int first = 0; first < end; first += 32) {
        float s = 0.0f;
#pragma unroll 1
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + lane;
            float r[32];
#pragma unroll
            for (int j = 0; j < 32; ++j)
                r[j] = first + j < end && d < D ? float(k[(kv_head * SKV + first + j) * D + d]) : 0.0f;
            transpose(r, lane);
            const float q_part = d < D ? float(q[row * D + d]) : 0.0f;
#pragma unroll
            for (int j = 0; j < 32; ++j) s += __shfl_sync(0xffffffffu, q_part, j) * r[j];
        }
        s = first + lane < end ? s * scale : -CUDART_INF_F;
        const float m_new = fmaxf(m, warp_max(s)), rescale = expf(m - m_new), p = expf(s - m_new);
        l = l * rescale + warp_sum(p);
        m = m_new;
        for (int i = 0; i < PER_LANE; ++i) u[i] *= rescale;
        for (int j = 0; j < min(32, end - first); ++j) {
            const float weight = __shfl_sync(0xffffffffu, p, j);
            for (int i = 0; i < PER_LANE; ++i)
                if (i * 32 + lane < D) u[i] += weight * float(v[(kv_head * SKV + first + j) * D + i * 32 + lane]);
        }
    }

    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
