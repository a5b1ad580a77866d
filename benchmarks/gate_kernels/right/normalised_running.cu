// The running output stays normalised, as in the first FlashAttention: every tile of eight keys makes O a mean of the
// old O and the tile's output, weighted by the sums of weights.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    normalised<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 4), HQ, B) block(128)
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

constexpr int TILE = 8;

template <int D>
__global__ void __launch_bounds__(128)
normalised(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;  // columns of a lane: lane, lane + 32 ...
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32;
    if (query >= SQ) return;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const size_t row = q_head * SQ + query;
    float ql[PER_LANE], out[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    const int end = visible_keys(query, SQ, SKV);
    for (int first = 0; first < end; first += TILE) {
        const int keys = min(TILE, end - first);
        const size_t at = (kv_head * SKV + first) * D;
        float s[TILE], m_new = m, sum = 0.0f;
        for (int j = 0; j < TILE; ++j) {
            float products = 0.0f;
            for (int i = 0; i < PER_LANE; ++i)
                if (j < keys && i * 32 + lane < D) products += ql[i] * float(k[at + j * D + i * 32 + lane]);
            s[j] = j < keys ? warp_sum(products) * scale : -CUDART_INF_F;
            m_new = fmaxf(m_new, s[j]);
        }
        for (int j = 0; j < TILE; ++j) sum += s[j] = expf(s[j] - m_new);
        const float kept = l * expf(m - m_new), inverse = 1.0f / (kept + sum);  // at least one weight is 1
        for (int i = 0; i < PER_LANE; ++i) {
            float u = 0.0f;
            for (int j = 0; j < TILE; ++j)
                if (j < keys && i * 32 + lane < D) u += s[j] * float(v[at + j * D + i * 32 + lane]);
            out[i] = out[i] * (kept * inverse) + u * inverse;
        }
        l = kept + sum;
        m = m_new;
    }
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(out[i]);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
