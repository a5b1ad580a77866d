// Lanes of one instruction write different values to one place.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float pair[64];
    const int t = threadIdx.x;
    pair[BUG ? t / 2 : t] = x[t];  // finds R101 warp=0 lanes=0xaaaaaaaa
    __syncthreads();
    o[t] = pair[t / 2];
}
