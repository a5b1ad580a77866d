// The sums of 4 warps are before the maxima; reading eight of them reads the maxima too.
// weft: define  BUG = 1
// weft: in      x : f32[128] = normal
// weft: out     o : f32[2]
// weft: launch  reduce(x, o) grid(1) block(128)

extern "C" __global__ void reduce(const float* x, float* o) {
    __shared__ float sums[4], maxima[4];
    const int t = threadIdx.x;
    float sum = x[t], most = x[t];
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, step);
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));
    }
    if (t % 32 == 0) {
        sums[t / 32] = sum;
        maxima[t / 32] = most;
    }
    __syncthreads();
    if (t < 8) {
        const int warps = BUG ? 8 : 4;
        float total = t < warps ? sums[t] : 0.0f;  // finds M101 name=sums cta=0,0,0 warp=0 lanes=0xf0
        for (int step = 4; step > 0; step /= 2) total += __shfl_xor_sync(0xff, total, step);
        if (t == 0) {
            o[0] = total;
            o[1] = fmaxf(fmaxf(maxima[0], maxima[1]), fmaxf(maxima[2], maxima[3]));
        }
    }
}
