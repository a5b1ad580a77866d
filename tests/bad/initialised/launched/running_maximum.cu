// Online softmax keeps its running maximum in shared memory; the bad kernel starts without one.
// weft: define  BUG = 1
// weft: in      s : f32[64, 8] = normal
// weft: out     o : f32[64]
// weft: launch  softmax_sum(s, o) grid(2) block(32)

extern "C" __global__ void softmax_sum(const float* s, float* o) {
    __shared__ float m[32];
    const int t = threadIdx.x, row = blockIdx.x * 32 + t;
    if (!BUG) m[t] = -1e30f;
    __syncwarp();
    float l = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < 8; ++j) {
        __syncwarp();
        const float old = m[t];  // finds I201 name=m warp=0 lanes=0xffffffff
        const float now = fmaxf(old, s[8 * row + j]);
        l = l * __expf(old - now) + __expf(s[8 * row + j] - now);
        m[t] = now;
    }
    o[row] = l;
}
