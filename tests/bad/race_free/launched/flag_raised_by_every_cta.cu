// Every CTA stores the same value: harmless, so it is an info.
// weft: define  BUG = 1
// weft: in      x : f32[128] = normal
// weft: out     o : f32[128]
// weft: out     done : i32[1]
// weft: launch  kernel(x, o, done) grid(4) block(32)

extern "C" __global__ void kernel(const float* x, float* o, int* done) {
    const int i = 32 * blockIdx.x + threadIdx.x;
    o[i] = x[i];
    if (threadIdx.x == 0 && (BUG || blockIdx.x == 0)) *done = 1;  // finds R101 warp=0 lanes=0x1 level=info
}
