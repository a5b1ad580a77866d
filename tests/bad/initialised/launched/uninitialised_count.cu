// How often a loop runs comes from a workspace that the bad kernel does not fill: the value decides a branch.
// weft: define    BUG = 1
// weft: in        x : f32[32] = normal
// weft: workspace count : i32[1]
// weft: out       o : f32[32]
// weft: launch    fill(count) grid(1) block(1)
// weft: launch    repeat(x, count, o) grid(1) block(32)

extern "C" __global__ void fill(int* count) {
    if (!BUG) *count = 3;
}

extern "C" __global__ void repeat(const float* x, const int* count, float* o) {
    const int n = *count;  // finds I202 name=count warp=0 lanes=0xffffffff reaches=branch
    float sum = 0.0f;
    #pragma unroll 1
    for (int i = 0; i < n; ++i) sum = sum * 0.5f + x[(threadIdx.x + i) & 31];
    o[threadIdx.x] = sum;
}
