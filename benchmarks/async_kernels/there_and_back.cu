// A tile is loaded, changed in place and stored, again and again in one place of shared memory.
// weft: in      x : i32[1280] = arange
// weft: out     y : i32[1280]
// weft: launch  there_and_back(x, y) grid(1) block(64)
#include "async.cuh"

__global__ void there_and_back(const int* x, int* y) {
    __shared__ alignas(128) int tile[256];
    __shared__ unsigned long long bar;
    const int t = threadIdx.x;
    if (t == 0) init(&bar, 1);
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < 5; k++) {
        if (t == 0) {
            wait_read<0>();
            expect(&bar, 1024);
            load(tile, x + 256 * k, 1024, &bar);
        }
        wait(&bar, k & 1);
        for (int i = 0; i < 4; i++) tile[t + 64 * i] += 1;
        fence_async();
        __syncthreads();
        if (t == 0) {
            store(y + 256 * k, tile, 1024);
            commit();
        }
    }
    if (t == 0) wait_read<0>();
}
