// The operands of each product are copied to shared memory by cp.async.
// weft: in      x : f16[4608] = normal
// weft: out     y : f32[512]
// weft: launch  copied(x, y) grid(1) block(128)
#include <cuda_fp16.h>
#include "async.cuh"

__global__ void __launch_bounds__(128) copied(const half* x, float* y) {
    __shared__ alignas(128) half tile[1152];
    const int t = threadIdx.x;
    float d[4] = {};
#pragma unroll 1
    for (int k = 0; k < 4; k++) {
        for (int i = t; i < 144; i += 128)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(tile + 8 * i)), "l"(x + 1152 * k + 8 * i));
        asm volatile("cp.async.wait_all;" ::: "memory");
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
