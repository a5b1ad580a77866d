// A table of indices of which the bad kernel fills the first half: the rest are undefined addresses.
// weft: define    BUG = 1
// weft: in        x : f32[32] = normal
// weft: workspace index : i32[32]
// weft: out       o : f32[32]
// weft: launch    fill(index) grid(1) block(32)
// weft: launch    gather(x, index, o) grid(1) block(32)

extern "C" __global__ void fill(int* index) {
    if (threadIdx.x < (BUG ? 16 : 32)) index[threadIdx.x] = 31 - threadIdx.x;
}

extern "C" __global__ void gather(const float* x, const int* index, float* o) {
    const int i = index[threadIdx.x] & 31;  // finds I202 name=index warp=0 lanes=0xffff0000 reaches=address
    o[threadIdx.x] = x[i];
}
