// The head's stride is that of padded rows: head 2 of 2 starts far after the end, in no buffer.
// weft: define  BUG = 1
// weft: in      x : f32[2, 64, 64] = normal
// weft: out     o : f32[2, 64]
// weft: launch  first_rows(x, o) grid(2) block(64)

extern "C" __global__ void first_rows(const float* x, float* o) {
    const int stride = BUG ? 2 * 64 * 64 : 64 * 64;
    o[blockIdx.x * 64 + threadIdx.x] = x[blockIdx.x * stride + threadIdx.x];  // finds M101 cta=1,0,0 warp=0 lanes=0xffffffff
}
