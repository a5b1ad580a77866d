// RMS norm of each row with cooperative groups: y = x / sqrt(mean(x²) + epsilon) · weight. One CTA per row.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void rms_norm(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ y,
                         int columns, float epsilon) {
    __shared__ float partial[32];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const float* const in = x + static_cast<size_t>(blockIdx.x) * columns;
    float* const out = y + static_cast<size_t>(blockIdx.x) * columns;

    float sum = 0.0f;
    for (int i = block.thread_rank(); i < columns; i += block.size()) sum += in[i] * in[i];
    sum = cg::reduce(warp, sum, cg::plus<float>());
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = sum;
    block.sync();
    if (warp.meta_group_rank() == 0) {
        sum = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : 0.0f;
        sum = cg::reduce(warp, sum, cg::plus<float>());
        if (warp.thread_rank() == 0) partial[0] = rsqrtf(sum / columns + epsilon);
    }
    block.sync();
    const float inverse = partial[0];
    for (int i = block.thread_rank(); i < columns; i += block.size()) out[i] = in[i] * inverse * weight[i];
}

// Sums groups of eight neighbours with a tile of 8 lanes, and counts positive elements among the lanes that are
// still together after a branch.
__global__ void small_groups(const float* __restrict__ x, float* __restrict__ sums, int* __restrict__ positive, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float value = i < n ? x[i] : 0.0f;
    float sum = value;
    for (int offset = tile.size() / 2; offset > 0; offset /= 2) sum += tile.shfl_down(sum, offset);
    if (tile.thread_rank() == 0 && i < n) sums[i / 8] = sum;
    if (value > 0.0f) {
        cg::coalesced_group together = cg::coalesced_threads();
        if (together.thread_rank() == 0) atomicAdd(positive, static_cast<int>(together.size()));
    }
}
