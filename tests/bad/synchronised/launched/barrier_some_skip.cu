// Only the even lanes reach the barrier; the odd ones wait at the next one for ever.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];
    if (!BUG || t < 32) asm volatile("bar.sync 1, 64;" ::: "memory");  // finds S301 warp=0 lanes=0xffffffff
    if (BUG && t >= 32) asm volatile("bar.sync 2, 64;" ::: "memory");
    o[t] = tile[t ^ 32];
}
