// The consumer also only arrives: an arrival orders nothing for the thread that arrives.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[32];
    const int t = threadIdx.x, lane = t % 32;
    if (t < 32) {
        tile[lane] = x[t];  // other
        if (BUG) asm volatile("bar.sync 1, 64;" ::: "memory"); else asm volatile("bar.arrive 1, 64;" ::: "memory");
        o[t] = 0.0f;
    } else {
        if (BUG) asm volatile("bar.arrive 1, 64;" ::: "memory"); else asm volatile("bar.sync 1, 64;" ::: "memory");
        o[t] = tile[lane];  // finds R102 warp=1 lanes=0xffffffff
    }
}
