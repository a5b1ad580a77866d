// All threads of a CTA leave partial sums, a barrier, then one takes the ticket: its fence must reach beyond the CTA.
// weft: define  BUG = 1
// weft: in      x : f32[4, 64] = normal
// weft: inout   counter : u32[1] = zeros
// weft: inout   partial : f32[256] = zeros
// weft: out     o : f32[64]
// weft: launch  kernel(x, counter, partial, o) grid(4) block(64)

extern "C" __global__ void kernel(const float* x, unsigned* counter, float* partial, float* o) {
    __shared__ bool last;
    const int t = threadIdx.x;
    partial[64 * blockIdx.x + t] = x[64 * blockIdx.x + t] * 2.0f;  // other
    __syncthreads();
    if (t == 0) {
        if (BUG) __threadfence_block();
        else __threadfence();
        last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        float sum = 0.0f;
        for (int i = 0; i < gridDim.x; i++) sum += partial[64 * i + 63 - t];  // finds R102 lanes=0xffffffff
        o[t] = sum;
    }
}
