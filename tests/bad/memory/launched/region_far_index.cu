// A column index beyond the scores' row of 8 warps: it skips the gap's first bytes, but stays in the gap.
// weft: define  BUG = 1
// weft: in      x : f32[256] = normal
// weft: out     o : f32[256]
// weft: launch  spread(x, o) grid(1) block(256) shared(4096)
#include <weft.h>

extern "C" __global__ void spread(const float* x, float* o) {
    extern __shared__ float block[];
    float* scores = WEFT_REGION(block, 1024, "scores");
    float* weights = WEFT_REGION(block + 256, 3072, "weights");
    const int t = threadIdx.x;
    scores[t] = x[t];
    for (int i = t; i < 768; i += 256) weights[i] = 1.0f;
    __syncthreads();
    o[t] = scores[BUG ? 2 * t : 255 - t] * weights[t];  // finds M105 cta=0,0,0 warp=4 lanes=0xffffffff
}
