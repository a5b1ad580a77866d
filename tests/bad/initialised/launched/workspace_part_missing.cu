// Four partial sums are stored in a workspace; the bad kernel does not write the last one, which the reduction reads.
// weft: define    BUG = 1
// weft: in        x : f32[4, 32] = normal
// weft: workspace part : f32[4, 32]
// weft: out       o : f32[32]
// weft: launch    leave(x, part) grid(4) block(32)
// weft: launch    reduce(part, o) grid(1) block(32)

extern "C" __global__ void leave(const float* x, float* part) {
    if (BUG && blockIdx.x == 3) return;
    const int i = blockIdx.x * 32 + threadIdx.x;
    part[i] = 2.0f * x[i];
}

extern "C" __global__ void reduce(const float* part, float* o) {
    float sum = 0.0f;
    #pragma unroll 1
    for (int p = 0; p < 4; ++p)
        sum += part[p * 32 + threadIdx.x];  // finds I202 name=part warp=0 lanes=0xffffffff
    o[threadIdx.x] = sum;
}
