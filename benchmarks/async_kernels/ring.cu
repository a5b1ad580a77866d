// A ring of two stages: one thread loads, two warps add up what was loaded.
// weft: in      x : i32[1280] = arange
// weft: out     y : i32[64]
// weft: launch  ring(x, y) grid(1) block(96)
#include "async.cuh"

__global__ void ring(const int* x, int* y) {
    __shared__ alignas(128) int stage[2][256];
    __shared__ unsigned long long full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0)
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 64);
        }
    __syncthreads();
    if (t >= 64) {
        if (t == 64)
#pragma unroll 1
            for (int k = 0; k < 5; k++) {
                const int s = k % 2, round = k / 2;
                if (round > 0) wait(&empty[s], round - 1 & 1);
                expect(&full[s], 1024);
                load(stage[s], x + 256 * k, 512, &full[s]);
                load(stage[s] + 128, x + 256 * k + 128, 512, &full[s]);
            }
        return;
    }
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < 5; k++) {
        const int s = k % 2, round = k / 2;
        wait(&full[s], round & 1);
        for (int i = 0; i < 4; i++) sum += stage[s][t + 64 * i];
        fence_async();
        arrive(&empty[s]);
    }
    y[t] = sum;
}
