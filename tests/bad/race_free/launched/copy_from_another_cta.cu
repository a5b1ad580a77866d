// cp.async fetches what another CTA has just written.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     rows : f32[2, 32]
// weft: out     o : f32[2, 32]
// weft: launch  kernel(x, rows, o) grid(2) block(32)

__device__ void copy(float* to, const float* from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");  // finds R102 warp=0 lanes=0xffffffff
}

extern "C" __global__ void kernel(const float* x, float* rows, float* o) {
    __shared__ float tile[32];
    const int t = threadIdx.x, cta = blockIdx.x;
    rows[32 * cta + t] = x[32 * cta + t];  // other
    if (!BUG || cta == 1) copy(&tile[t], rows + 32 * (BUG ? 0 : cta) + t);
    asm volatile("cp.async.wait_all;" ::: "memory");
    o[32 * cta + t] = BUG && cta == 0 ? 0.0f : tile[t];
}
