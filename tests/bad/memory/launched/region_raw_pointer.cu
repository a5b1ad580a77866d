// A clearing loop writes the entire block through the block's own pointer after it was carved.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  accumulate(x, o) grid(1) block(64) shared(768)
#include <weft.h>

extern "C" __global__ void accumulate(const float* x, float* o) {
    extern __shared__ float block[];
    const int t = threadIdx.x;
    if (!BUG) block[t] = block[t + 64] = block[t + 128] = 0.0f;
    __syncthreads();
    float* sums = WEFT_REGION(block + 64, 256, "sums");
    if (BUG) block[t + 64] = 0.0f;  // finds M105 name=sums cta=0,0,0 warp=0 lanes=0xffffffff
    __syncthreads();
    block[t] = x[t];
    block[t + 128] = x[t];
    sums[t] = x[t];
    __syncthreads();
    o[t] = block[63 - t] + sums[63 - t] + block[191 - t];
}
