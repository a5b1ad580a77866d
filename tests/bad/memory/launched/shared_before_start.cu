// A halo of one element: thread 0 reads before the start of the array.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  difference(x, o) grid(1) block(64)

extern "C" __global__ void difference(const float* x, float* o) {
    __shared__ float row[64];
    const int t = threadIdx.x;
    row[t] = x[t];
    __syncthreads();
    o[t] = row[t] - (BUG || t > 0 ? row[t - 1] : 0.0f);  // finds M101 name=row cta=0,0,0 warp=0 lanes=0x1
}
