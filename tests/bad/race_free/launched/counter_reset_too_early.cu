// The last CTA resets the counter by a plain store, as its ticket observed all others. The first CTA may not do that.
// weft: define  BUG = 1
// weft: in      x : f32[4, 64] = normal
// weft: inout   counter : u32[1] = zeros
// weft: inout   partial : f32[4] = zeros
// weft: out     o : f32[1]
// weft: launch  kernel(x, counter, partial, o) grid(4) block(64)

extern "C" __global__ void kernel(const float* x, unsigned* counter, float* partial, float* o) {
    __shared__ float tile[64];
    __shared__ bool last, resets;
    const int t = threadIdx.x;
    tile[t] = x[64 * blockIdx.x + t];
    __syncthreads();
    if (t == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 64; i++) sum += tile[i];
        partial[blockIdx.x] = sum;
        __threadfence();
        const unsigned ticket = atomicInc(counter, 2 * gridDim.x);  // finds R101 warp=0 lanes=0x1
        last = ticket == gridDim.x - 1;
        resets = ticket == (BUG ? 0 : gridDim.x - 1);
    }
    __syncthreads();
    if (last && t == 32) {
        float sum = 0.0f;
        for (int i = 0; i < gridDim.x; i++) sum += partial[i];
        *o = sum;
    }
    if (t == 0 && resets) *counter = 0;  // other
}
