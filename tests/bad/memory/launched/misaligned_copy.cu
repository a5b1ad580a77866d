// cp.async of 16 bytes into rows of 20 bytes: three rows of four start misaligned.
// weft: define  BUG = 1
// weft: in      x : f32[32, 4] = normal
// weft: out     o : f32[32]
// weft: launch  gather(x, o) grid(1) block(32)

extern "C" __global__ void gather(const float* x, float* o) {
    constexpr int STRIDE = BUG ? 5 : 8;
    __shared__ __align__(16) float tile[32 * STRIDE];
    const int t = threadIdx.x;
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + STRIDE * t));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + 4 * t) : "memory");  // finds M102 cta=0,0,0 warp=0 lanes=0xeeeeeeee
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    o[t] = BUG ? 0.0f : tile[STRIDE * t] + tile[STRIDE * t + 3];
}
