// The two warps give different counts for one barrier.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];
    if (t < 32) asm volatile("bar.sync 1, %0;" ::"n"(BUG ? 32 : 64) : "memory");
    if (t >= 32) asm volatile("bar.sync 1, 64;" ::: "memory");  // finds S305 warp=1 lanes=0xffffffff
    __syncthreads();
    o[t] = tile[t ^ 32];
}
