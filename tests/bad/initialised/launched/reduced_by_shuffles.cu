// 16 sums are in shared memory, and all 32 lanes read one. Shuffles among 16 lanes use valid sums; the bad kernel
// reduces over 32.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[1]
// weft: launch  reduce(x, o) grid(1) block(32)

extern "C" __global__ void reduce(const float* x, float* o) {
    __shared__ float sums[32];
    const int t = threadIdx.x;
    if (t < 16) sums[t] = x[t] + x[t + 16];
    __syncthreads();
    float v = sums[t];  // finds I201 name=sums warp=0 lanes=0xffff0000
    for (int step = BUG ? 16 : 8; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
    if (t == 0) *o = v;
}
