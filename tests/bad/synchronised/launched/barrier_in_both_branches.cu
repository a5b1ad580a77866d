// The lanes of a warp reach two different barrier instructions.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];
    if (BUG && t % 2 == 0) {
        asm volatile("bar.sync 0;  // even" ::: "memory");
    } else {
        asm volatile("bar.sync 0;  // odd" ::: "memory");  // finds S306 warp=0
    }
    o[t] = tile[t ^ 32];
}
