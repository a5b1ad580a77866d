// CTAs that wait for each other: they end only if all make progress together.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

// Every block sums its part, all meet at grid.sync(), every thread writes the total.
__global__ void total_by_grid_sync(const int* x, int* parts, int* y) {
    __shared__ int sum;
    auto grid = cg::this_grid();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[grid.thread_rank()]);
    __syncthreads();
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
    grid.sync();
    int total = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) total += parts[block];
    grid.sync();
    if (threadIdx.x == 0) parts[blockIdx.x] = total;
    y[grid.thread_rank()] = total;
}

// The same, twice, with a barrier made of a counter and a spin on it.
__device__ void meet(unsigned* counter, unsigned goal) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1);
        while (*const_cast<volatile unsigned*>(counter) < goal) {}
        __threadfence();
    }
    __syncthreads();
}

__global__ void rotated_twice(int* x, unsigned* counter) {
    int here = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    for (unsigned round = 1; round <= 2; ++round) {
        int next = x[(here + blockDim.x) % n];
        meet(counter, (2 * round - 1) * gridDim.x);
        x[here] = next + 1;
        meet(counter, 2 * round * gridDim.x);
    }
}

// Stream-K: block b owns tile b / 2; the even block of a tile waits for the odd one's half and adds it.
__global__ void stream_k(const float* x, float* halves, int* flags, float* y, int k) {
    int tile = blockIdx.x / 2, half = blockIdx.x % 2;
    float sum = 0;
    for (int i = half * k / 2; i < (half + 1) * k / 2; ++i) sum += x[(tile * k + i) * blockDim.x + threadIdx.x];
    if (half == 1) {
        halves[tile * blockDim.x + threadIdx.x] = sum;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(&flags[tile], 1);
        return;
    }
    if (threadIdx.x == 0) while (atomicAdd(&flags[tile], 0) == 0) __nanosleep(100);
    __syncthreads();
    __threadfence();
    y[tile * blockDim.x + threadIdx.x] = sum + *const_cast<volatile float*>(&halves[tile * blockDim.x + threadIdx.x]);
}
