// 16 bins for values from 0 to 16, the last one included.
// weft: define  BUG = 1
// weft: out     o : u32[16]
// weft: launch  count(o) grid(1) block(64)

extern "C" __global__ void count(unsigned* o) {
    __shared__ unsigned bins[16];
    const int t = threadIdx.x;
    if (t < 16) bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[t % (BUG ? 17 : 16)], 1u);  // finds M101 name=bins cta=0,0,0 warp=0 lanes=0x10000
    __syncthreads();
    if (t < 16) o[t] = bins[t];
}
