// A shuffle synchronises lanes, but it does not order memory.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float row[2][32];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    row[warp][lane] = x[t];  // other
    const float other = __shfl_xor_sync(0xFFFFFFFFu, x[t], 1);
    if (!BUG) __syncwarp();
    o[t] = other + row[warp][(lane + 1) % 32];  // finds R102 warp=0 lanes=0xffffffff
}
