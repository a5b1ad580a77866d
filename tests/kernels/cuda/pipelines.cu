// Barriers and pipelines of libcu++ in shared memory: mbarriers underneath.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;
constexpr int STAGES = 2;
constexpr int THREADS = 128;

// y[t] = sum over rows of x[row][t + 1], the rows staged by the whole block while the one before is summed.
__global__ void staged_sum(const float* x, float* y, int rows) {
    __shared__ float stage[STAGES][THREADS];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    x += blockIdx.x * rows * THREADS;
    float sum = 0;
    for (int row = 0, fetched = 0; row < rows; ++row) {
        for (; fetched < rows && fetched < row + STAGES; ++fetched) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[fetched % STAGES], x + fetched * THREADS, sizeof(float) * THREADS, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += stage[row % STAGES][(threadIdx.x + 1) % THREADS];
        pipe.consumer_release();
    }
    y[blockIdx.x * THREADS + threadIdx.x] = sum;
}

// One warp copies, the others sum: y[t] = sum over rows of x[row][31 - t].
__global__ void produced_sum(const float* x, float* y, int rows) {
    __shared__ float stage[STAGES][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    const auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, role);
    if (role == cuda::pipeline_role::producer) {
        for (int row = 0; row < rows; ++row) {
            pipe.producer_acquire();
            cuda::memcpy_async(&stage[row % STAGES][threadIdx.x], x + row * 32 + threadIdx.x, sizeof(float), pipe);
            pipe.producer_commit();
        }
    } else {
        float sum = 0;
        for (int row = 0; row < rows; ++row) {
            pipe.consumer_wait();
            sum += stage[row % STAGES][31 - threadIdx.x % 32];
            pipe.consumer_release();
        }
        y[threadIdx.x - 32] = sum;
    }
}

// y = x with its halves swapped, doubled and turned around; every exchange behind a cuda::barrier.
__global__ void exchanged(const int* x, int* y) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int tile[THREADS];
    if (threadIdx.x == 0) init(&barrier, THREADS);
    __syncthreads();
    tile[threadIdx.x] = x[threadIdx.x];
    auto token = barrier.arrive();
    barrier.wait(cuda::std::move(token));
    int mine = tile[(threadIdx.x + THREADS / 2) % THREADS];
    barrier.arrive_and_wait();
    tile[threadIdx.x] = 2 * mine;
    barrier.arrive_and_wait();
    y[threadIdx.x] = tile[THREADS - 1 - threadIdx.x];
}
