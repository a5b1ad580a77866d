// Softmax of each row of an fp32 matrix (rows, columns), with warp shuffles.

#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;

__device__ float warp_max(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, offset));
    return x;
}

__device__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

// One warp per row; the running maximum and sum are merged once at the end.
__global__ void softmax_warp_per_row(const float* __restrict__ x, float* __restrict__ out, int rows, int columns) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* const in = x + static_cast<size_t>(row) * columns;

    float m = -CUDART_INF_F;
    float l = 0.0f;
    for (int i = lane; i < columns; i += 32) {
        const float m_new = fmaxf(m, in[i]);
        l = l * expf(m - m_new) + expf(in[i] - m_new);
        m = m_new;
    }
    const float row_max = warp_max(m);
    // A lane without a column has m = -inf and l = 0; row_max is finite, so its weight is exp(-inf) = 0.
    const float inverse = 1.0f / warp_sum(l * expf(m - row_max));
    for (int i = lane; i < columns; i += 32) out[static_cast<size_t>(row) * columns + i] = expf(in[i] - row_max) * inverse;
}

// Reduces over the CTA in two levels; every thread gets the result.
template <int WARPS, typename Combine>
__device__ float block_reduce(float x, float neutral, Combine combine) {
    __shared__ float partial[WARPS];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    for (int offset = 16; offset > 0; offset /= 2) x = combine(x, __shfl_down_sync(ALL_LANES, x, offset));
    __syncthreads();  // the previous reduction has been read
    if (lane == 0) partial[warp] = x;
    __syncthreads();
    x = lane < WARPS ? partial[lane] : neutral;
    for (int offset = WARPS / 2; offset > 0; offset /= 2) x = combine(x, __shfl_down_sync(ALL_LANES, x, offset));
    return __shfl_sync(ALL_LANES, x, 0);
}

// One CTA per row.
template <int WARPS>
__global__ void __launch_bounds__(32 * WARPS)
softmax_block_per_row(const float* __restrict__ x, float* __restrict__ out, int columns) {
    const float* const in = x + static_cast<size_t>(blockIdx.x) * columns;
    float* const row = out + static_cast<size_t>(blockIdx.x) * columns;

    float m = -CUDART_INF_F;
    for (int i = threadIdx.x; i < columns; i += 32 * WARPS) m = fmaxf(m, in[i]);
    m = block_reduce<WARPS>(m, -CUDART_INF_F, [](float a, float b) { return fmaxf(a, b); });
    float l = 0.0f;
    for (int i = threadIdx.x; i < columns; i += 32 * WARPS) l += expf(in[i] - m);
    l = block_reduce<WARPS>(l, 0.0f, [](float a, float b) { return a + b; });
    for (int i = threadIdx.x; i < columns; i += 32 * WARPS) row[i] = expf(in[i] - m) / l;
}
