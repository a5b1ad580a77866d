// The grid steps by half a block: neighbours write the same elements.
// weft: define  BUG = 1
// weft: in      x : f32[512] = normal
// weft: out     o : f32[512]
// weft: launch  kernel(x, o) grid(8) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    const int i = blockIdx.x * (BUG ? 32 : 64) + threadIdx.x;
    o[i] = x[i] + blockIdx.x;  // finds R101 warp=0 lanes=0xffffffff
}
