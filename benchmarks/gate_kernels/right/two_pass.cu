// Two passes over the keys, one CTA per query: the first finds the largest score, the second recomputes the scores
// and sums the weights and P V with the final maximum, so nothing is ever rescaled.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    two_pass<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(SQ, HQ, B) block(128)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

constexpr int THREADS = 128;

__device__ float dot(const float* sQ, const T* row, int D) {
    float s = 0.0f;
    for (int d = 0; d < D; ++d) s += sQ[d] * float(row[d]);
    return s;
}

template <int D>
__global__ void __launch_bounds__(THREADS)
two_pass(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int COLUMNS = (D + THREADS - 1) / THREADS;  // columns of a thread: t, t + THREADS ...
    __shared__ float sQ[D], sP[THREADS], partial[THREADS / 32];
    const int t = threadIdx.x, query = blockIdx.x;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    const T* const keys = k + kv_head * SKV * D;
    const T* const values = v + kv_head * SKV * D;
    for (int d = t; d < D; d += THREADS) sQ[d] = float(q[row * D + d]) * scale;
    __syncthreads();

    const int end = visible_keys(query, SQ, SKV);
    float m = -CUDART_INF_F;
    for (int key = t; key < end; key += THREADS) m = fmaxf(m, dot(sQ, keys + size_t(key) * D, D));
    m = warp_max(m);
    if (t % 32 == 0) partial[t / 32] = m;
    __syncthreads();
    for (int w = 0; w < THREADS / 32; ++w) m = fmaxf(m, partial[w]);

    float u[COLUMNS] = {}, l = 0.0f;
    for (int first = 0; first < end; first += THREADS) {
        __syncthreads();  // the weights of the chunk before were read
        sP[t] = first + t < end ? expf(dot(sQ, keys + size_t(first + t) * D, D) - m) : 0.0f;
        __syncthreads();
        for (int j = 0; j < min(THREADS, end - first); ++j) {
            l += sP[j];
            for (int c = 0; c < COLUMNS; ++c) {
                const int d = c * THREADS + t;
                if (d < D) u[c] += sP[j] * float(values[size_t(first + j) * D + d]);
            }
        }
    }
    for (int c = 0; c < COLUMNS; ++c) {
        const int d = c * THREADS + t;
        if (d < D) o[row * D + d] = T(l > 0.0f ? u[c] / l : 0.0f);
    }
    if (t == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
