// Threads write the operands of each product to one place of shared memory.
// weft: in      x : f16[4608] = normal
// weft: out     y : f32[512]
// weft: launch  written(x, y) grid(1) block(128)
#include <cuda_fp16.h>
#include "async.cuh"

__global__ void __launch_bounds__(128) written(const half* x, float* y) {
    __shared__ alignas(128) half tile[1152];
    const int t = threadIdx.x;
    float d[4] = {};
#pragma unroll 1
    for (int k = 0; k < 4; k++) {
        for (int i = t; i < 1152; i += 128) tile[i] = x[1152 * k + i];
        fence_async();
        __syncthreads();
        multiply_fence();
        multiply(d, descriptor(tile, 1024), descriptor(tile + 1024, 128));
        multiply_commit();
        multiply_wait<0>(d);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) y[4 * t + i] = d[i];
}
