// A ring of two stages of operands: one thread loads, a warpgroup multiplies. A stage is A (64 x 16), then B (8 x 16).
// weft: in      x : f16[4608] = normal
// weft: out     y : f32[512]
// weft: launch  product(x, y) grid(1) block(160)
#include <cuda_fp16.h>
#include "async.cuh"

__global__ void __launch_bounds__(160) product(const half* x, float* y) {
    __shared__ alignas(128) half stage[2][1152];
    __shared__ unsigned long long full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0)
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 128);
        }
    __syncthreads();
    if (t >= 128) {
        if (t == 128)
#pragma unroll 1
            for (int k = 0; k < 4; k++) {
                const int s = k % 2, round = k / 2;
                if (round > 0) wait(&empty[s], round - 1 & 1);
                expect(&full[s], 2304);
                load(stage[s], x + 1152 * k, 2304, &full[s]);
            }
        return;
    }
    float d[4] = {};
#pragma unroll 1
    for (int k = 0; k < 4; k++) {
        const int s = k % 2, round = k / 2;
        wait(&full[s], round & 1);
        multiply_fence();
        multiply(d, descriptor(stage[s], 1024), descriptor(stage[s] + 1024, 128));
        multiply_commit();
        multiply_wait<0>(d);
        arrive(&empty[s]);
    }
    for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
