// The kernel changes the address of a tensor map for each of its two loads.
// weft: in      x : i32[2, 256] = arange
// weft: inout   scratch : u8[128] = zeros
// weft: out     y : i32[512]
// weft: launch  maps(tensormap(x, box=(1, 256)), x, scratch, y) grid(1) block(64)
#include "async.cuh"

__global__ void maps(const __grid_constant__ Map given, const int* x, unsigned char* scratch, int* y) {
    __shared__ alignas(128) int tile[256];
    __shared__ alignas(128) unsigned made[32];
    __shared__ unsigned long long bar;
    const int t = threadIdx.x;
    if (t == 0) init(&bar, 1);
    if (t < 32) made[t] = reinterpret_cast<const unsigned*>(&given)[t];
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        if (t == 0) set_address(made, x + 256 * k);
        __syncthreads();
        if (t < 32) hand_over(scratch, made);
        __syncthreads();
        acquire(scratch);
        if (t == 0) {
            expect(&bar, 1024);
            load_box(tile, scratch, &bar);
        }
        wait(&bar, k & 1);
        for (int i = 0; i < 4; i++) y[256 * k + t + 64 * i] = tile[t + 64 * i];
        fence_async();
        __syncthreads();
    }
}
