// Warp 1 waits for a flag that no thread sets.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ volatile int flag;
    const int t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (!BUG && t == 0) flag = 1;
    if (t == 32) {
        while (flag == 0) {}  // finds S302 warp=1
    }
    o[t] = x[t];
}
