// Two stages: threads fill one while a bulk store reads the other.
// weft: out     y : i32[1280]
// weft: launch  drain(y) grid(1) block(64)
#include "async.cuh"

__global__ void drain(int* y) {
    __shared__ alignas(128) int stage[2][256];
    const int t = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < 5; k++) {
        const int s = k % 2;
        if (t == 0) wait_read<1>();
        __syncthreads();
        for (int i = 0; i < 4; i++) stage[s][t + 64 * i] = 256 * k + t + 64 * i;
        fence_async();
        __syncthreads();
        if (t == 0) {
            store(y + 256 * k, stage[s], 1024);
            commit();
        }
    }
    if (t == 0) wait_read<0>();
}
