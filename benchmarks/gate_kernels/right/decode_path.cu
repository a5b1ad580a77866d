// Two paths chosen by the launch lines: one query per head is decoded by a CTA whose warps share the keys, and more
// queries take one warp each.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    decode<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(128) when(SQ == 1)
// weft: launch    prefill<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128) when(SQ > 1)
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

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
decode(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ float sU[WARPS][D], sM[WARPS], sL[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, query = blockIdx.x;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    const int end = visible_keys(query, SQ, SKV), share = (end + WARPS - 1) / WARPS;  // keys of a warp, side by side
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int key = warp * share; key < min(end, (warp + 1) * share); ++key)
        step<D>(ql, u, m, l, k + (kv_head * SKV + key) * D, v + (kv_head * SKV + key) * D, scale);
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) sU[warp][i * 32 + lane] = u[i];
    if (lane == 0) sM[warp] = m, sL[warp] = l;
    __syncthreads();
    float top = -CUDART_INF_F, total = 0.0f, weight[WARPS];
    for (int w = 0; w < WARPS; ++w) top = fmaxf(top, sM[w]);
    for (int w = 0; w < WARPS; ++w) {
        weight[w] = sL[w] > 0.0f ? expf(sM[w] - top) : 0.0f;
        total += weight[w] * sL[w];
    }
    for (int d = threadIdx.x; d < D; d += 32 * WARPS) {
        float sum = 0.0f;
        for (int w = 0; w < WARPS; ++w) sum += weight[w] * sU[w][d];
        o[row * D + d] = T(total > 0.0f ? sum / total : 0.0f);
    }
    if (threadIdx.x == 0) lse[row] = total > 0.0f ? top + logf(total) : -CUDART_INF_F;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
prefill(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // columns of a lane: lane, lane + 32 ...
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key)
        step<D>(ql, u, m, l, k + (kv_head * SKV + key) * D, v + (kv_head * SKV + key) * D, scale);
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
