// Split-K attention in fp32: every split of the keys leaves (O unnormalised, m, l); a second kernel merges them.
//
// Q, K, V, O are (heads, S, D); partial O is (heads, splits, S, D), partial m and l are (heads, splits, S).
// Both kernels: one warp per query, grid.y = head; `partial` has grid.z = splits. Masking is top-left causal, so a
// split may hold no visible key: it leaves O = 0, m = -inf, l = 0.

#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <int D>
__global__ void attention_partial(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                                  float* __restrict__ partial_o, float* __restrict__ partial_m,
                                  float* __restrict__ partial_l, int S, float scale, bool causal) {
    static_assert(D % 32 == 0, "each lane holds D / 32 columns");
    constexpr int PER_LANE = D / 32;
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (query >= S) return;
    const int splits = gridDim.z;
    const int keys_per_split = (S + splits - 1) / splits;
    const int first_key = blockIdx.z * keys_per_split;
    const int end_key = min(first_key + keys_per_split, causal ? query + 1 : S);
    const size_t head = static_cast<size_t>(blockIdx.y) * S * D;

    float q_row[PER_LANE];
    float out[PER_LANE];
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
        q_row[j] = q[head + static_cast<size_t>(query) * D + j * 32 + lane] * scale;
        out[j] = 0.0f;
    }
    float m = -CUDART_INF_F;
    float l = 0.0f;
    for (int key = first_key; key < end_key; ++key) {
        const size_t row = head + static_cast<size_t>(key) * D;
        float score = 0.0f;
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) score += q_row[j] * k[row + j * 32 + lane];
        score = warp_sum(score);
        const float m_new = fmaxf(m, score);
        const float rescale = expf(m - m_new);
        const float p = expf(score - m_new);
#pragma unroll
        for (int j = 0; j < PER_LANE; ++j) out[j] = out[j] * rescale + p * v[row + j * 32 + lane];
        l = l * rescale + p;
        m = m_new;
    }

    const size_t slot = (static_cast<size_t>(blockIdx.y) * splits + blockIdx.z) * S + query;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) partial_o[slot * D + j * 32 + lane] = out[j];
    if (lane == 0) {
        partial_m[slot] = m;
        partial_l[slot] = l;
    }
}

template <int D>
__global__ void attention_reduce(const float* __restrict__ partial_o, const float* __restrict__ partial_m,
                                 const float* __restrict__ partial_l, float* __restrict__ o, float* __restrict__ lse,
                                 int S, int splits) {
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (query >= S) return;
    const size_t first_slot = static_cast<size_t>(blockIdx.y) * splits * S + query;
    const size_t row = static_cast<size_t>(blockIdx.y) * S + query;

    float maximum = -CUDART_INF_F;
    for (int split = 0; split < splits; ++split) maximum = fmaxf(maximum, partial_m[first_slot + split * S]);
    if (maximum == -CUDART_INF_F) {  // no visible key: never exp(-inf - -inf)
        for (int d = lane; d < D; d += 32) o[row * D + d] = 0.0f;
        if (lane == 0) lse[row] = -CUDART_INF_F;
        return;
    }
    float l = 0.0f;
    for (int split = 0; split < splits; ++split) {
        const size_t slot = first_slot + static_cast<size_t>(split) * S;
        l += partial_l[slot] * expf(partial_m[slot] - maximum);
    }
    for (int d = lane; d < D; d += 32) {
        float out = 0.0f;
        for (int split = 0; split < splits; ++split) {
            const size_t slot = first_slot + static_cast<size_t>(split) * S;
            out += partial_o[slot * D + d] * expf(partial_m[slot] - maximum);
        }
        o[row * D + d] = out / l;
    }
    if (lane == 0) lse[row] = maximum + logf(l);
}
