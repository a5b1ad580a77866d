// A barrier of the whole grid made of a counter: it orders what threads did only with the fence.
// weft: define  BUG = 1
// weft: in      x : f32[4, 64] = normal
// weft: inout   arrived : u32[1] = zeros
// weft: inout   rows : f32[4, 64] = zeros
// weft: out     o : f32[4, 64]
// weft: launch  kernel(x, arrived, rows, o) grid(4) block(64)

extern "C" __global__ void kernel(const float* x, unsigned* arrived, float* rows, float* o) {
    const int t = threadIdx.x, cta = blockIdx.x;
    rows[64 * cta + t] = x[64 * cta + t] * 3.0f;  // other
    __syncthreads();
    if (t == 0) {
        if (!BUG) __threadfence();
        atomicAdd(arrived, 1u);
        while (*static_cast<volatile unsigned*>(arrived) < gridDim.x) {}
        if (!BUG) __threadfence();
    }
    __syncthreads();
    o[64 * cta + t] = rows[64 * ((cta + 1) % gridDim.x) + t];  // finds R102 lanes=0xffffffff
}
