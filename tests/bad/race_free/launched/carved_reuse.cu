// The score tile is reused for the output before all threads have read it.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64) shared(64 * 4)

extern "C" __global__ void kernel(const float* x, float* o) {
    extern __shared__ float block[];
    const int t = threadIdx.x;
    block[t] = x[t];
    __syncthreads();
    const float sum = block[t] + block[t ^ 32];  // other
    if (!BUG) __syncthreads();
    block[t] = sum;  // finds R103 warp=1 lanes=0xffffffff
    __syncthreads();
    o[t] = block[63 - t];
}
