// The launch line's size of shared memory omits the row sums.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  rows(x, o) grid(1) block(64) shared(512 - 256 * BUG)
#include <weft.h>

extern "C" __global__ void rows(const float* x, float* o) {
    extern __shared__ float block[];
    float* tile = WEFT_REGION(block, 256, "tile");
    float* sums = WEFT_REGION(block + 64, 256, "sums");  // finds M105 cta=0,0,0 warp=0 lanes=0xffffffff says=begin
    const int t = threadIdx.x;
    tile[t] = x[t];
    __syncthreads();
    sums[t] = tile[t] + tile[t ^ 1];
    o[t] = sums[t];
}
