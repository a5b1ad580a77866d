// A thread keeps 16 values and looks one up by an index that may be 16.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  pick(x, o) grid(1) block(64)

extern "C" __global__ void pick(const float* x, float* o) {
    float own[16];
    const int t = threadIdx.x;
    for (int i = 0; i < 16; ++i) own[(i * 7 + t) & 15] = x[(t + i) & 63];
    o[t] = own[BUG ? t % 17 : t % 16];  // finds M101 cta=0,0,0 warp=0 lanes=0x10000
}
