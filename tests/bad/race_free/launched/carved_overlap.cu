// Two parts of a dynamic block overlap by one float; the barrier between phases hides it in the twin.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64) shared(64 * 4)

extern "C" __global__ void kernel(const float* x, float* o) {
    extern __shared__ float block[];
    float* const low = block;
    float* const high = block + (BUG ? 31 : 32);
    const int t = threadIdx.x, lane = t % 32;
    if (t < 32) low[lane] = x[t];  // other
    if (t >= 32) high[lane] = x[t];  // finds R101 warp=1 lanes=0x1
    __syncthreads();
    o[t] = t < 32 ? low[lane] : high[lane];
}
