// A barrier counts full warps.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];
    asm volatile("bar.sync 1, %0;" ::"r"(blockDim.x - (BUG ? 16 : 0)) : "memory");  // finds S305 warp=0 lanes=0xffffffff
    __syncthreads();
    o[t] = tile[t ^ 32];
}
