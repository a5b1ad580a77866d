// The mask of a shuffle in a branch has lanes that wait at a barrier after it.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    const int t = threadIdx.x, lane = t % 32;
    float sum = x[t];
    if (lane < 16) sum += __shfl_xor_sync(BUG ? 0xFFFFFFFFu : 0x0000FFFFu, sum, 1);  // finds S301 warp=0 lanes=0xffff
    __syncthreads();
    o[t] = sum;
}
