// Two warps exchange their halves through global memory: that needs a barrier, too.
// weft: define  BUG = 1
// weft: in      x : f32[2, 64] = normal
// weft: inout   rows : f32[2, 64] = zeros
// weft: out     o : f32[2, 64]
// weft: launch  kernel(x, rows, o) grid(2) block(64)

extern "C" __global__ void kernel(const float* x, float* rows, float* o) {
    const int t = threadIdx.x, row = 64 * blockIdx.x;
    rows[row + t] = x[row + t] + 1.0f;  // other
    if (!BUG) __syncthreads();
    o[row + t] = rows[row + 63 - t];  // finds R102 warp=1 lanes=0xffffffff
}
