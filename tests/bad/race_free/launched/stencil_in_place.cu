// A stencil that works in place reads its neighbour's first element, which the neighbour may have changed.
// weft: define  BUG = 1
// weft: inout   o : f32[128] = normal
// weft: launch  kernel(o) grid(4) block(32)

extern "C" __global__ void kernel(float* o) {
    const int i = 32 * blockIdx.x + threadIdx.x, end = BUG ? 128 : 32 * blockIdx.x + 32;
    const float here = o[i], right = i + 1 < end ? o[i + 1] : 0.0f;  // other
    __syncwarp();
    o[i] = here + right;  // finds R103 warp=0 lanes=0x1
}
