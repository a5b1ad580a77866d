// The copy's source is overwritten before the wait.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

__device__ void copy(float* to, const float* from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    o[t] = x[t];
    copy(&tile[t], o + t);
    if (!BUG) asm volatile("cp.async.wait_all;" ::: "memory");
    o[t] = 1.0f;  // finds R105 warp=0 lanes=0xffffffff
    asm volatile("cp.async.wait_all;" ::: "memory");
    o[t] += tile[t];
}
