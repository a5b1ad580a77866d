// `i <= n` is true for one thread too many: thread 1000 is lane 8 of warp 7 of the fourth CTA.
// weft: define  BUG = 1
// weft: sizes   N=1000
// weft: in      x : f32[N] = normal
// weft: out     y : f32[N]
// weft: launch  scale(x, y, N) grid(cdiv(N, 256)) block(256)

extern "C" __global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (BUG ? i <= n : i < n) y[i] = 2.0f * x[i];  // finds M101 cta=3,0,0 warp=7 lanes=0x100
}
