// A dynamic block holds the tile and, behind it, the partial sums; the barrier before they are read is missing.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64) shared(66 * 4)

extern "C" __global__ void kernel(const float* x, float* o) {
    extern __shared__ float block[];
    float* const tile = block;
    float* const sums = block + 64;
    const int t = threadIdx.x;
    tile[t] = x[t];
    __syncthreads();
    if (t % 32 == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 32; ++i) sum += tile[t + i];
        sums[t / 32] = sum;  // other
    }
    if (!BUG) __syncthreads();
    o[t] = sums[0] + sums[1];  // finds R102 warp=1 lanes=0xffffffff
}
