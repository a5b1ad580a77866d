// The last CTA adds the others' partial sums; without __threadfence() its ticket does not order them.
// weft: define  BUG = 1
// weft: in      x : f32[4, 64] = normal
// weft: inout   counter : u32[1] = zeros
// weft: inout   partial : f32[4] = zeros
// weft: out     o : f32[1]
// weft: launch  kernel(x, counter, partial, o) grid(4) block(64)

extern "C" __global__ void kernel(const float* x, unsigned* counter, float* partial, float* o) {
    __shared__ float tile[64];
    __shared__ bool last;
    const int t = threadIdx.x;
    tile[t] = x[64 * blockIdx.x + t];
    __syncthreads();
    if (t == 0) {
        float sum = 0.0f;
        for (int i = 0; i < 64; i++) sum += tile[i];
        partial[blockIdx.x] = sum;  // other
        if (!BUG) __threadfence();
        last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 32) {
        float sum = 0.0f;
        for (int i = 0; i < gridDim.x; i++) sum += partial[i];  // finds R102 warp=1 lanes=0x1
        *o = sum;
    }
}
