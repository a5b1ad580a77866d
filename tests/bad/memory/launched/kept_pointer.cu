// The first launch keeps a pointer to its scratch memory for the second; the bad one is beyond that memory's end.
// weft: define    BUG = 1
// weft: workspace scratch : f32[64]
// weft: out       o : f32[64]
// weft: launch    keep(scratch) grid(1) block(64)
// weft: launch    use(o) grid(1) block(64)

__device__ float* kept;

extern "C" __global__ void keep(float* scratch) {
    scratch[threadIdx.x] = 1.0f;
    if (threadIdx.x == 0) kept = scratch + (BUG ? 32 : 0);
}

extern "C" __global__ void use(float* o) {
    o[threadIdx.x] = kept[threadIdx.x];  // finds M101 cta=0,0,0 warp=1 lanes=0xffffffff
}
