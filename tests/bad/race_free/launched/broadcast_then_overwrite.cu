// Every lane reads the running maximum, then lane 0 replaces it: a write after reads within a warp.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float best[2];
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    if (lane == 0) best[warp] = x[t];
    __syncwarp();
    const float old = best[warp];  // other
    if (!BUG) __syncwarp();
    if (lane == 0) best[warp] = old + 1.0f;  // finds R103 warp=0 lanes=0x1 level=warning
    __syncwarp();
    o[t] = old + best[warp];
}
