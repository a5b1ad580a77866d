// `= {0.0f}` sets all elements to zero; without it only the first is set.
// weft: define  BUG = 1
// weft: in      x : f32[128] = normal
// weft: out     o : f32[32]
// weft: launch  sum(x, o) grid(1) block(32)

extern "C" __global__ void sum(const float* x, float* o) {
#if BUG
    float acc[128];
    acc[0] = 0.0f;
#else
    float acc[128] = {0.0f};
#endif
    #pragma unroll 1
    for (int j = threadIdx.x; j < 128; j += 32) acc[j] += x[j];  // finds I203 warp=0 debug=acc
    float total = 0.0f;
    #pragma unroll 1
    for (int j = threadIdx.x; j < 128; j += 32) total += acc[j];
    o[threadIdx.x] = total;
}
