// 30 floats of row maxima written four at a time: the last vector reaches two floats into the row sums.
// weft: define  BUG = 1
// weft: out     o : f32[30]
// weft: launch  clear(o) grid(1) block(32) shared(256)
#include <weft.h>

extern "C" __global__ void clear(float* o) {
    extern __shared__ __align__(16) float block[];
    float* maxima = WEFT_REGION(block, 120, "maxima");
    float* sums = WEFT_REGION(block + 30, 120, "sums");
    const int t = threadIdx.x;
    if (t < 30) sums[t] = 1.0f;
    if (BUG) {
        if (t < 8) *reinterpret_cast<float4*>(maxima + 4 * t) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);  // finds M105 cta=0,0,0 warp=0 lanes=0x80
    } else if (t < 30) {
        maxima[t] = 0.0f;
    }
    __syncthreads();
    if (t < 30) o[t] = sums[29 - t] + (BUG ? 0.0f : maxima[29 - t]);
}
