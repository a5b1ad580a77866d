// Half of the threads read through a pointer to shared, the others through one to global memory; both are too short.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  select(x, o) grid(1) block(64)

extern "C" __global__ void select(const float* x, float* o) {
    __shared__ float tile[32];
    const int t = threadIdx.x;
    if (t < 32) tile[t] = x[t];
    __syncthreads();
    const float* from = t % 2 ? tile : x;
    asm volatile("" : "+l"(from));
    o[t] = from[BUG ? t : t % 32];  // finds M101 name=tile cta=0,0,0 warp=1 lanes=0xaaaaaaaa
}
