// One warp per query, one key per lane; D is known at run time, Q and U are in shared memory. A query is divided by its
// largest element first, so that products neither overflow nor vanish.
//
// wrong 1 odd_d: columns are multiplied in pairs, and the last column of an odd D is left out (seen at B=1 HQ=1 HKV=1 SQ=8 SKV=20 D=33 f16 none unit_normal)
// wrong 2 zero_query: a query of zeros is divided by its largest element, 0 / 0 (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=32 f16 none zeros)
// wrong 3 clamped: exponents below -12 are clamped to -12 (seen at B=1 HQ=1 HKV=1 SQ=8 SKV=300 D=64 f32 none logits_16)
// wrong 4 small_weights: weights below 2e-4 of the largest are skipped (seen at B=1 HQ=1 HKV=1 SQ=8 SKV=300 D=64 f32 none logits_8)
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  warp_keys(q, k, v, o, lse, HKV, SQ, SKV, D, scale)
// weft:         grid(SQ, HQ, B) block(32) shared(8 * D)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

__device__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    return x;
}

__device__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
    return x;
}

__global__ void warp_keys(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV, int SQ,
                          int SKV, int D, float scale) {
    extern __shared__ float q_row[];
    float* const u = q_row + D;
    const int lane = threadIdx.x, query = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + query;
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    int end = SKV;
    if (CAUSAL) end = max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));

    float largest = 0.0f;
    for (int d = lane; d < D; d += 32) largest = fmaxf(largest, fabsf(float(q[row * D + d])));
    largest = warp_max(largest);
    if (WRONG != 2 && largest == 0.0f) largest = 1.0f;
    for (int d = lane; d < D; d += 32) q_row[d] = float(q[row * D + d]) / largest, u[d] = 0.0f;
    __syncwarp();

    float m = -CUDART_INF_F, l = 0.0f;
    for (int first = 0; first < end; first += 32) {
        const int key = first + lane;
        const bool seen = key < end;
        float s = -CUDART_INF_F;
        if (seen) {
            const ELEMENT* const k_row = k + kv + size_t(key) * D;
            float even = 0.0f, odd = 0.0f;
            for (int d = 0; d + 1 < D; d += 2) {
                even += q_row[d] * float(k_row[d]);
                odd += q_row[d + 1] * float(k_row[d + 1]);
            }
            if (D % 2 && WRONG != 1) even += q_row[D - 1] * float(k_row[D - 1]);
            s = (even + odd) * scale * largest;
        }
        const float m_new = fmaxf(m, warp_max(s)), rescale = expf(m - m_new);
        float p = seen ? expf(WRONG == 3 ? fmaxf(s - m_new, -12.0f) : s - m_new) : 0.0f;
        if (WRONG == 4 && p < 2e-4f) p = 0.0f;
        l = l * rescale + warp_sum(p);
        m = m_new;
        const int keys = min(32, end - first);
        for (int base = 0; base < D; base += 32) {
            const int d = base + lane;
            float sum = 0.0f;
            for (int i = 0; i < keys; ++i) {
                const float weight = __shfl_sync(~0u, p, i);
                if (d < D) sum += weight * float(v[kv + size_t(first + i) * D + d]);
            }
            if (d < D) u[d] = u[d] * rescale + sum;
        }
    }
    for (int d = lane; d < D; d += 32) o[row * D + d] = ELEMENT(l == 0.0f ? 0.0f : u[d] / l);
    if (lane == 0) lse[row] = m + logf(l);
}
