// One warp per query, and every lane keeps the complete row of scores. Wrong with BUG = 1.
//
//     O = softmax(Q Kᵀ · scale) V,   LSE = log Σ_n exp(Q Kᵀ · scale)
//
// The warp computes BLOCK_N scores, a lane each, and leaves them in shared memory. A lane then copies the row to its own
// array, so that maximum and sum need no shuffle. With BUG it copies only the scores it computed itself.
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define  BUG = 1
// weft: define  BLOCK_N = 64
// weft: define  WARPS = 4
// weft: in      q    : f16[B, HQ, SQ, D] = normal
// weft: in      k, v : f16[B, HKV, SKV, D] = normal
// weft: out     o    : f16[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  row_per_lane<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)

#include <cuda_fp16.h>
#include <math_constants.h>

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
row_per_lane(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v, half* __restrict__ o,
             float* __restrict__ lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32;
    __shared__ float sS[WARPS][BLOCK_N];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + warp;
    if (query >= SQ) return;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    const size_t q_row = (static_cast<size_t>(b) * HQ + h) * SQ + query;
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);

    float u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int first_key = 0; first_key < SKV; first_key += BLOCK_N) {
        for (int n = lane; n < BLOCK_N; n += 32) {
            float s = -CUDART_INF_F;
            if (first_key + n < SKV) {
                const half* const k_row = k + (kv_head * SKV + first_key + n) * D;
                s = 0.0f;
                for (int d = 0; d < D; ++d) s += __half2float(q[q_row * D + d]) * __half2float(k_row[d]);
                s *= scale;
            }
            sS[warp][n] = s;
        }
        __syncwarp();

        float row[BLOCK_N];
#if BUG
        for (int n = lane; n < BLOCK_N; n += 32) row[n] = sS[warp][n];  // the other lanes' scores stay undefined
#else
        for (int n = 0; n < BLOCK_N; ++n) row[n] = sS[warp][n];
#endif
        __syncwarp();  // sS is free for the next tile

        float m_new = m;
        for (int n = 0; n < BLOCK_N; ++n) m_new = fmaxf(m_new, row[n]);
        const float rescale = expf(m - m_new);
        for (int i = 0; i < PER_LANE; ++i) u[i] *= rescale;
        l *= rescale;
        for (int n = 0; n < BLOCK_N && first_key + n < SKV; ++n) {
            const float p = expf(row[n] - m_new);
            l += p;
            for (int i = 0; i < PER_LANE; ++i) {
                const int d = i * 32 + lane;
                if (d < D) u[i] += p * __half2float(v[(kv_head * SKV + first_key + n) * D + d]);
            }
        }
        m = m_new;
    }
    for (int i = 0; i < PER_LANE; ++i) {
        const int d = i * 32 + lane;
        if (d < D) o[q_row * D + d] = __float2half_rn(u[i] / l);
    }
    if (lane == 0) lse[q_row] = m + logf(l);
}
