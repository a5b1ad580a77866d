// Tails by clamping: every load of a key, value or query beyond the end reads the last one instead, eight lanes share
// a query, and keys out of sight get the score -inf.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    clamped_tail<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 8), HQ, B) block(64)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

constexpr int LANES = 8, QUERIES = 8, STEP = 4;  // lanes per query, queries per CTA, keys per step

template <int D>
__global__ void __launch_bounds__(LANES * QUERIES)
clamped_tail(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + LANES - 1) / LANES;
    const int lane = threadIdx.x % LANES, number = blockIdx.x * QUERIES + threadIdx.x / LANES;
    const int query = min(number, SQ - 1);
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i)  // a column beyond D counts as 0 in Q, so K's clamped one does not matter
        ql[i] = i * LANES + lane < D ? float(q[row * D + i * LANES + lane]) : 0.0f;
    const int visible = visible_keys(query, SQ, SKV);
    for (int first = 0; first < SKV; first += STEP) {
        float s[STEP];
        for (int j = 0; j < STEP; ++j) {
            const size_t at = (kv_head * SKV + min(first + j, SKV - 1)) * D;
            s[j] = 0.0f;
            for (int i = 0; i < PER_LANE; ++i) s[j] += ql[i] * float(k[at + min(i * LANES + lane, D - 1)]);
            for (int w = LANES / 2; w > 0; w /= 2) s[j] += __shfl_xor_sync(0xffffffffu, s[j], w);
            s[j] = first + j < visible ? s[j] * scale : -CUDART_INF_F;
        }
        const float m_new = fmaxf(m, fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])));
        const float shift = m_new == -CUDART_INF_F ? 0.0f : m_new, rescale = expf(m - shift);
        for (int i = 0; i < PER_LANE; ++i) u[i] *= rescale;
        l *= rescale;
        for (int j = 0; j < STEP; ++j) {
            const size_t at = (kv_head * SKV + min(first + j, SKV - 1)) * D;
            const float p = expf(s[j] - shift);
            l += p;
            for (int i = 0; i < PER_LANE; ++i) u[i] += p * float(v[at + min(i * LANES + lane, D - 1)]);
        }
        m = m_new;
    }
    if (number >= SQ) return;
    for (int i = 0; i < PER_LANE; ++i)
        if (i * LANES + lane < D) o[row * D + i * LANES + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
