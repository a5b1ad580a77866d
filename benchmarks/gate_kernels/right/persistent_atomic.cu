// Persistent CTAs that draw blocks of queries from an atomic counter; the last CTA to finish resets the counters for
// the next launch.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    persistent_atomic<{D}>(q, k, v, o, lse, B * HQ * cdiv(SQ, 4), HQ, HKV, SQ, SKV, scale)
// weft:           grid(min(6, B * HQ * cdiv(SQ, 4))) block(128)
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

// One key: score s of this warp's query; every lane holds the columns lane, lane + 32 ...
template <int D, int PER_LANE>
__device__ __forceinline__ void step(const float (&ql)[PER_LANE], float (&u)[PER_LANE], float& m, float& l,
                                     const T* k_row, const T* v_row, float scale) {
    const int lane = threadIdx.x % 32;
    float s = 0.0f;
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) s += ql[i] * float(k_row[i * 32 + lane]);
    s = warp_sum(s) * scale;
    const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) u[i] = u[i] * rescale + p * float(v_row[i * 32 + lane]);
    l = l * rescale + p;
    m = m_new;
}

constexpr int WARPS = 4;
__device__ int next_item = 0, finished = 0;

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
persistent_atomic(const T* q, const T* k, const T* v, T* o, float* lse, int items, int HQ, int HKV, int SQ, int SKV,
                  float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __shared__ int drawn;
    for (;;) {
        __syncthreads();  // `drawn` of the round before was read
        if (threadIdx.x == 0) drawn = atomicAdd(&next_item, 1);
        __syncthreads();
        const int item = drawn;
        if (item >= items) break;
        const int blocks = (SQ + WARPS - 1) / WARPS, query = item % blocks * WARPS + warp;
        const int h = item / blocks % HQ, b = item / blocks / HQ;
        const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV), row = q_head * SQ + query;
        if (query < SQ) {
            float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
            for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
            for (int key = 0; key < visible_keys(query, SQ, SKV); ++key)
                step<D>(ql, u, m, l, k + (kv_head * SKV + key) * D, v + (kv_head * SKV + key) * D, scale);
            for (int i = 0; i < PER_LANE; ++i)
                if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
            if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
        }
    }
    if (threadIdx.x == 0 && atomicAdd(&finished, 1) == int(gridDim.x) - 1) {  // no CTA takes more work
        next_item = 0;
        finished = 0;
    }
}
