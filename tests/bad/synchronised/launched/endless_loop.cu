// A loop whose condition never changes.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    const int t = threadIdx.x;
    volatile int left = 3;
    while (left > 0) {  // finds S302
        if (!BUG) left = left - 1;
    }
    o[t] = x[t];
}
