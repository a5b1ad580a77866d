// Two arrays carved from dynamic shared memory; the bad kernel clears only the first.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  carve(x, o) grid(2) block(32) shared(512)

extern "C" __global__ void carve(const float* x, float* o) {
    extern __shared__ float block[];
    float *sums = block, *counts = block + 64;
    const int t = threadIdx.x;
    for (int i = t; i < (BUG ? 64 : 128); i += 32) block[i] = 0.0f;
    __syncthreads();
    sums[t] += x[blockIdx.x * 32 + t];
    counts[t] += 1.0f;  // finds I201 name=block warp=0 lanes=0xffffffff
    __syncthreads();
    o[blockIdx.x * 32 + t] = sums[31 - t] / counts[31 - t];
}
