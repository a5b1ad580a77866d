// cp.async with two stages: the stage's number is not taken modulo 2, so the third copy is written after the buffer.
// weft: define  BUG = 1
// weft: in      x : f32[4, 128] = normal
// weft: out     o : f32[128]
// weft: launch  pipeline(x, o) grid(1) block(32) shared(2048)
#include <weft.h>

extern "C" __global__ void pipeline(const float* x, float* o) {
    extern __shared__ __align__(128) float block[];
    float* stages = WEFT_REGION(block, 1024, "stages");
    float* sums = WEFT_REGION(block + 256, 512, "sums");
    const int t = threadIdx.x;
    for (int i = t; i < 128; i += 32) sums[i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < 4; ++step) {
        float* const stage = stages + (BUG ? step : step % 2) * 128;
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(stage + 4 * t));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + step * 128 + 4 * t) : "memory");  // finds M105 cta=0,0,0 warp=0 lanes=0xffffffff
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        if (!BUG)
            for (int i = t; i < 128; i += 32) sums[i] += stage[127 - i];
        __syncthreads();
    }
    for (int i = t; i < 128; i += 32) o[i] = sums[i];
}
