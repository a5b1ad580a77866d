// The upper half of the warp shuffles with the mask of the lower one.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    const int t = threadIdx.x;
    const unsigned mask = BUG ? 0x0000FFFFu : (t % 32 < 16 ? 0x0000FFFFu : 0xFFFF0000u);
    float sum = x[t];
    asm volatile("" : "+f"(sum));
    o[t] = sum + __shfl_xor_sync(mask, sum, 1);  // finds S304 warp=0 lanes=0xffff0000
}
