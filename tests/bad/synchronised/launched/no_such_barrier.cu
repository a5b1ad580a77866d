// There are sixteen barriers.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];
    asm volatile("bar.sync %0, 64;" ::"r"(BUG ? 16 : 15) : "memory");  // finds S303 warp=0 lanes=0xffffffff
    __syncthreads();
    o[t] = tile[t ^ 32];
}
