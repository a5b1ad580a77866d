// Each CTA has 4 rows and writes a fifth, which is the first of the next CTA.
// weft: define  BUG = 1
// weft: in      x : f32[12, 32] = normal
// weft: out     o : f32[12, 32]
// weft: launch  kernel(x, o, 12) grid(3) block(32)

extern "C" __global__ void kernel(const float* x, float* o, int rows) {
    const int first = 4 * blockIdx.x, end = first + 4 + (BUG ? 1 : 0);
    for (int row = first; row < end && row < rows; row++) {
        const int i = 32 * row + threadIdx.x;
        o[i] = x[i] * (row - first + 1);  // finds R101 warp=0 lanes=0xffffffff
    }
}
