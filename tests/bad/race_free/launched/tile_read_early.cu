// Z15: each thread reads a float of the other warp without a barrier after the writes.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    tile[t] = x[t];  // other
    if (!BUG) __syncthreads();
    o[t] = tile[t ^ 32];  // finds R102 warp=1 lanes=0xffffffff
}
