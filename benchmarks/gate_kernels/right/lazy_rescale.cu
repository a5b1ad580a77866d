// Lazy rescaling, one warp per query: the reference of the exponent follows the running maximum only when a score
// exceeds it by more than 8 powers of two, so that most keys rescale nothing; weights stay below 256, which f16
// values times keys leave room for in fp32.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: in        q    : f16[B, HQ, SQ, D] = normal
// weft: in        k, v : f16[B, HKV, SKV, D] = normal
// weft: out       o    : f16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    lazy_rescale<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
#include <cuda_fp16.h>
#include <math_constants.h>

using T = half;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

constexpr float THRESHOLD = 8.0f;  // in powers of two

template <int D>
__global__ void __launch_bounds__(128)
lazy_rescale(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // columns of a lane: lane, lane + 32 ...
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {};
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    const float scale_log2 = scale * 1.44269504f;
    float reference = -CUDART_INF_F, l = 0.0f;

    for (int key = 0; key < visible_keys(query, SQ, SKV); ++key) {
        const size_t at = (kv_head * SKV + key) * D;
        float s = 0.0f;
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) s += ql[i] * float(k[at + i * 32 + lane]);
        s = warp_sum(s) * scale_log2;
        if (s > reference + THRESHOLD) {  // the same in all lanes; always true at the first key
            const float rescale = exp2f(reference - s);
            for (int i = 0; i < PER_LANE; ++i) u[i] *= rescale;
            l *= rescale;
            reference = s;
        }
        const float p = exp2f(s - reference);
        l += p;
        for (int i = 0; i < PER_LANE; ++i)
            if (i * 32 + lane < D) u[i] += p * float(v[at + i * 32 + lane]);
    }
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? reference * 0.693147181f + logf(l) : -CUDART_INF_F;
}
