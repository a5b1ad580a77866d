// The last of 8 copies of 16 bytes has only 8 bytes of source left; the twin passes that size and gets zeros.
// weft: define  BUG = 1
// weft: in      x : f32[30] = normal
// weft: out     o : f32[32]
// weft: launch  copy(x, o) grid(1) block(32)

extern "C" __global__ void copy(const float* x, float* o) {
    __shared__ __align__(16) float tile[32];
    const int t = threadIdx.x;
    if (t < 8) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + 4 * t));
        const int bytes = BUG ? 16 : min(16, 120 - 16 * t);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(x + 4 * t), "r"(bytes) : "memory");  // finds M101 cta=0,0,0 warp=0 lanes=0x80
        asm volatile("cp.async.wait_all;" ::: "memory");
    }
    __syncthreads();
    o[t] = BUG ? 0.0f : tile[t];
}
