// The entire row of scores is in dynamic shared memory: a CTA per query writes its scores, reduces them twice, and
// multiplies with V; the number of keys is limited by that memory.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: require   SKV <= 12000 : a row of scores in 48 KB
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    row_in_shared(q, k, v, o, lse, HKV, SQ, SKV, D, scale) grid(SQ, HQ, B) block(96) shared(4 * SKV)
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

constexpr int THREADS = 96;

__global__ void __launch_bounds__(THREADS)
row_in_shared(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, int D, float scale) {
    extern __shared__ float row_scores[];
    __shared__ float partial[THREADS / 32];
    const int t = threadIdx.x, query = blockIdx.x;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    const int end = visible_keys(query, SQ, SKV);
    float m = -CUDART_INF_F, l = 0.0f;
    for (int key = t; key < end; key += THREADS) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k[(kv_head * SKV + key) * D + d]);
        row_scores[key] = s * scale;
        m = fmaxf(m, s * scale);
    }
    m = warp_max(m);
    if (t % 32 == 0) partial[t / 32] = m;
    __syncthreads();
    m = fmaxf(partial[0], fmaxf(partial[1], partial[2]));
    for (int key = t; key < end; key += THREADS) l += row_scores[key] = expf(row_scores[key] - m);  // its own ones
    l = warp_sum(l);
    __syncthreads();  // the maxima were read
    if (t % 32 == 0) partial[t / 32] = l;
    __syncthreads();
    l = partial[0] + partial[1] + partial[2];
    for (int d = t; d < D; d += THREADS) {
        float u = 0.0f;
        for (int key = 0; key < end; ++key) u += row_scores[key] * float(v[(kv_head * SKV + key) * D + d]);
        o[row * D + d] = T(l > 0.0f ? u / l : 0.0f);
    }
    if (t == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
