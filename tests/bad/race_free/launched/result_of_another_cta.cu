// Every CTA writes a sum and reads that of the one before, which may not have run yet.
// weft: define  BUG = 1
// weft: in      x : f32[4, 32] = normal
// weft: out     o : f32[8]
// weft: launch  kernel(x, o) grid(4) block(32)

extern "C" __global__ void kernel(const float* x, float* o) {
    const int cta = blockIdx.x;
    if (threadIdx.x > 0) return;
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) sum += x[32 * cta + i];
    o[cta] = sum;  // other
    const int from = BUG && cta > 0 ? cta - 1 : cta;
    o[4 + cta] = o[from] * 2.0f;  // finds R102 warp=0 lanes=0x1
}
