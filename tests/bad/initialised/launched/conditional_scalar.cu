// A scalar that only some paths set. The optimiser takes the set value for granted; the -G build shows the read.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  use(x, o) grid(1) block(32)

extern "C" __global__ void use(const float* x, float* o) {
    const int t = threadIdx.x;
    float best;
    if (!BUG) best = -1e30f;
    #pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        if (x[(t + i) & 31] > 0.0f) best = x[(t + i) & 31];
        o[t] = best;  // finds I203 only=debug
    }
}
