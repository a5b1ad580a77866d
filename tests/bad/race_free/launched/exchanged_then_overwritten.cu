// Lanes read the running maximum and lane 0 replaces it. Shuffles that need what was read are in between, or are not.
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
    float sum = BUG ? x[t] : expf(x[t] - old);
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane == 0) best[warp] = old + 1.0f;  // finds R103 warp=0 lanes=0x1 level=warning
    __syncwarp();
    o[t] = sum + old + best[warp];
}
