// A host address passed as a number; the twin receives none and uses none.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: scalar  table : i64 = 0x5581_2f40_0000 * BUG
// weft: launch  add(x, table, o) grid(1) block(64)

extern "C" __global__ void add(const float* x, const float* table, float* o) {
    const int t = threadIdx.x;
    o[t] = x[t] + (table ? table[t] : 0.0f);  // finds M104 cta=0,0,0 warp=0 lanes=0xffffffff says=host
}
