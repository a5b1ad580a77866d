// Z02: each lane loads only its own score, and the maximum goes over a row of which it has one element.
// weft: define  BUG = 1
// weft: in      s : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  maximum(s, o) grid(1) block(32)

extern "C" __global__ void maximum(const float* s, float* o) {
    float row[64];
    const int lane = threadIdx.x;
    for (int j = 0; j < 32; ++j)
        if (!BUG || j == lane) row[j] = s[j];
    float m = -1e30f;
    #pragma unroll 1
    for (int j = 0; j < 32; ++j) m = fmaxf(m, row[(j + lane) & 31]);  // finds I203 warp=0 debug=row
    o[lane] = m;
}
