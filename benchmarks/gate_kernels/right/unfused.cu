// Not fused: three launches write all scores to a workspace, turn each row into weights in place, and multiply the
// weights with V; masked scores are -inf.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: workspace s : f32[B, HQ, SQ, SKV]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    scores(q, k, s, HQ, HKV, SQ, SKV, D, scale) grid(SQ, cdiv(SKV, 64), B * HQ) block(64)
// weft: launch    softmax(s, lse, SKV) grid(B * HQ * SQ) block(32)
// weft: launch    weighted(s, v, o, HQ, HKV, SQ, SKV, D) grid(SQ, cdiv(D, 64), B * HQ) block(64)
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

__global__ void scores(const T* q, const T* k, float* s, int HQ, int HKV, int SQ, int SKV, int D, float scale) {
    const int query = blockIdx.x, key = blockIdx.y * blockDim.x + threadIdx.x, b = blockIdx.z / HQ, h = blockIdx.z % HQ;
    if (key >= SKV) return;
    const T* const a = q + (size_t(blockIdx.z) * SQ + query) * D;
    const T* const c = k + ((size_t(b) * HKV + h / (HQ / HKV)) * SKV + key) * D;
    float sum = 0.0f;
    for (int d = 0; d < D; ++d) sum += float(a[d]) * float(c[d]);
    s[(size_t(blockIdx.z) * SQ + query) * SKV + key] = key < visible_keys(query, SQ, SKV) ? sum * scale : -CUDART_INF_F;
}

__global__ void softmax(float* s, float* lse, int SKV) {  // one warp per row
    float* const row = s + size_t(blockIdx.x) * SKV;
    float m = -CUDART_INF_F, l = 0.0f;
    for (int key = threadIdx.x; key < SKV; key += 32) m = fmaxf(m, row[key]);
    m = warp_max(m);
    const float shift = m == -CUDART_INF_F ? 0.0f : m;  // a row that sees no key: every weight is exp(-inf) = 0
    for (int key = threadIdx.x; key < SKV; key += 32) l += expf(row[key] - shift);
    l = warp_sum(l);
    const float inverse = l > 0.0f ? 1.0f / l : 0.0f;
    for (int key = threadIdx.x; key < SKV; key += 32) row[key] = expf(row[key] - shift) * inverse;
    if (threadIdx.x == 0) lse[blockIdx.x] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}

__global__ void weighted(const float* p, const T* v, T* o, int HQ, int HKV, int SQ, int SKV, int D) {
    const int query = blockIdx.x, b = blockIdx.z / HQ, h = blockIdx.z % HQ, d = blockIdx.y * blockDim.x + threadIdx.x;
    if (d >= D) return;
    const size_t row = size_t(blockIdx.z) * SQ + query, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    float u = 0.0f;
    for (int key = 0; key < SKV; ++key) u += p[row * SKV + key] * float(v[(kv_head * SKV + key) * D + d]);
    o[row * D + d] = T(u);
}
