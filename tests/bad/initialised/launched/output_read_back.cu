// A value is added to an output that was never written before.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  add(x, o) grid(1) block(64)

extern "C" __global__ void add(const float* x, float* o) {
    const int t = threadIdx.x;
#if BUG
    o[t] += x[t];  // finds I202 name=o warp=0 lanes=0xffffffff
#else
    o[t] = x[t];
#endif
}
