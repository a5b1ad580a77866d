// Rings of copies as the CUDA headers spell them, right or wrong as in copy_rings.cu.
#include <cuda/barrier>
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

constexpr int STAGES = 2, WIDTH = 32;

__device__ unsigned at(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void copy(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from) : "memory");
}

// Everybody copies and everybody reads what others copied, with the primitives of the CUDA headers.
__global__ void primitives(const float* x, float* y, int rows) {
    __shared__ float stage[STAGES][96];
    __shared__ __mbarrier_t bar[STAGES];
    const int t = threadIdx.x;
    if (t == 0)
        for (int s = 0; s < STAGES; ++s) __mbarrier_init(&bar[s], 96);
    __syncthreads();
    float sum = 0;
    __pipeline_memcpy_async(&stage[0][t], x + t % 32, 4);
    __pipeline_arrive_on(&bar[0]);
    for (int row = 0; row < rows; ++row) {
        const int s = row % STAGES;
        if (row + 1 < rows) {
            __pipeline_memcpy_async(&stage[1 - s][t], x + (row + 1) * WIDTH + t % 32, 4);
#ifndef NO_ARRIVAL
            __pipeline_arrive_on(&bar[1 - s]);
#endif
        }
        auto token = __mbarrier_arrive(&bar[s]);
#ifndef NO_WAIT
        while (!__mbarrier_test_wait(&bar[s], token)) {}
#endif
        sum += stage[s][95 - t];
#ifndef NO_EMPTY
        __syncthreads();
#endif
    }
    if (t < 64) y[t] = sum;
}

// The same with libcu++.
__global__ void libcu(const float* x, float* y, int rows) {
    __shared__ float stage[STAGES][96];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar[STAGES];
    const int t = threadIdx.x;
    if (t == 0)
        for (int s = 0; s < STAGES; ++s) init(&bar[s], 96);
    __syncthreads();
    float sum = 0;
    cuda::memcpy_async(&stage[0][t], x + t % 32, sizeof(float), bar[0]);
    for (int row = 0; row < rows; ++row) {
        const int s = row % STAGES;
        if (row + 1 < rows) {
#ifdef NO_ARRIVAL
            copy(&stage[1 - s][t], x + (row + 1) * WIDTH + t % 32);
#else
            cuda::memcpy_async(&stage[1 - s][t], x + (row + 1) * WIDTH + t % 32, sizeof(float), bar[1 - s]);
#endif
        }
#ifdef NO_WAIT
        (void)bar[s].arrive();
#else
        bar[s].arrive_and_wait();
#endif
        sum += stage[s][95 - t];
#ifndef NO_EMPTY
        __syncthreads();
#endif
    }
    if (t < 64) y[t] = sum;
}
