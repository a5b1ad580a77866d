// Rows of 5 floats read as vectors of 2: every second row starts at an odd float.
// weft: define  BUG = 1
// weft: in      x : f32[32, 5] = normal
// weft: out     o : f32[32]
// weft: launch  heads(x, o) grid(1) block(32)

extern "C" __global__ void heads(const float* x, float* o) {
    const float* row = x + 5 * threadIdx.x;
    float2 v;
#if BUG
    v = *reinterpret_cast<const float2*>(row);  // finds M102 cta=0,0,0 warp=0 lanes=0xaaaaaaaa
#else
    v = make_float2(row[0], row[1]);
#endif
    o[threadIdx.x] = v.x + v.y;
}
