// Key-parallel: eight warps of a CTA share the keys of one query, and a tree in shared memory merges their maxima,
// weights and outputs.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    key_parallel<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(256)
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

constexpr int WARPS = 8;

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
key_parallel(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ float sU[WARPS][D], sM[WARPS], sL[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, query = blockIdx.x;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int key = warp; key < visible_keys(query, SQ, SKV); key += WARPS)
        step<D>(ql, u, m, l, k + (kv_head * SKV + key) * D, v + (kv_head * SKV + key) * D, scale);
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) sU[warp][i * 32 + lane] = u[i];
    if (lane == 0) sM[warp] = m, sL[warp] = l;
    __syncthreads();

    for (int half = WARPS / 2; half > 0; half /= 2) {
        if (warp < half) {
            const float mine = sM[warp], other = sM[warp + half], top = fmaxf(mine, other);
            const float shift = top == -CUDART_INF_F ? 0.0f : top;  // two warps without keys
            const float a = expf(mine - shift), c = expf(other - shift);
            for (int d = lane; d < D; d += 32) sU[warp][d] = sU[warp][d] * a + sU[warp + half][d] * c;
            __syncwarp();  // every lane has read the maxima
            if (lane == 0) {
                sL[warp] = sL[warp] * a + sL[warp + half] * c;
                sM[warp] = top;
            }
        }
        __syncthreads();
    }
    for (int d = threadIdx.x; d < D; d += 32 * WARPS) o[row * D + d] = T(sL[0] > 0.0f ? sU[0][d] / sL[0] : 0.0f);
    if (threadIdx.x == 0) lse[row] = sL[0] > 0.0f ? sM[0] + logf(sL[0]) : -CUDART_INF_F;
}
