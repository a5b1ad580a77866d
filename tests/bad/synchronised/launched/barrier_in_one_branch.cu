// Half of warp 0 reaches the barrier in the branch, the other half the one after it.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];
    if (BUG && t < 16) asm volatile("bar.sync 0;" ::: "memory");
    asm volatile("bar.sync 0;" ::: "memory");  // finds S306 warp=0 lanes=0xffff0000
    o[t] = tile[t ^ 32];
    if (BUG && t >= 16) asm volatile("bar.sync 0;" ::: "memory");
}
