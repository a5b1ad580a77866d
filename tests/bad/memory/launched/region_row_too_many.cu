// The loop over the keys' rows runs once too often, and writes the first row of V, which is after K.
// weft: define  BUG = 1
// weft: in      x : f32[33, 32] = normal
// weft: out     o : f32[32]
// weft: launch  tiles(x, o) grid(1) block(64) shared(8192)
#include <weft.h>

extern "C" __global__ void tiles(const float* x, float* o) {
    extern __shared__ __align__(128) float block[];
    float* k = WEFT_REGION(block, 4096, "k");
    float* v = WEFT_REGION(block + 1024, 4096, "v");
    const int column = threadIdx.x % 32, half_cta = threadIdx.x / 32;
    for (int r = half_cta; r < 32; r += 2) v[r * 32 + column] = x[r * 32 + column];
    __syncthreads();
    for (int r = half_cta; r < (BUG ? 33 : 32); r += 2) k[r * 32 + column] = x[r * 32 + column];  // finds M105 cta=0,0,0 warp=0 lanes=0xffffffff
    __syncthreads();
    if (half_cta == 0) o[column] = k[31 * 32 + column] + v[column];
}
