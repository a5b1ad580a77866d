// The output tile reuses the place of K on purpose, but is larger than K.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  turn(x, o) grid(1) block(64) shared(1024)
#include <weft.h>

extern "C" __global__ void turn(const float* x, float* o) {
    extern __shared__ float block[];
    float* k = WEFT_REGION(block, BUG ? 128 : 256, "k");
    float* v = WEFT_REGION(block + 64, 256, "v");
    const int t = threadIdx.x;
    if (t < 32) k[t] = x[t];
    v[t] = x[t];
    __syncthreads();
    const float sum = k[31 - t % 32] + v[63 - t];
    __syncthreads();
    float* out = WEFT_REGION_REUSE(block, 256, "out");  // finds M105 cta=0,0,0 warp=0 lanes=0xffffffff
    out[t] = sum;
    __syncthreads();
    o[t] = out[63 - t];
}
