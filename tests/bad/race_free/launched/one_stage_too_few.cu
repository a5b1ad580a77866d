// Double buffering with cp.async: the wait leaves one group more in flight than it may.
// weft: define  BUG = 1
// weft: in      x : f32[192] = normal
// weft: out     o : f32[192]
// weft: launch  kernel(x, o) grid(1) block(64)

__device__ void copy(float* to, const float* from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float stage[2][64];
    const int t = threadIdx.x;
    float sum = 0.0f;
    copy(&stage[0][t], x + t);
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (int i = 0; i < 3; ++i) {
        if (i < 2) copy(&stage[(i + 1) % 2][t], x + 64 * (i + 1) + t);
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (BUG) asm volatile("cp.async.wait_group 2;" ::: "memory"); else asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        sum += stage[i % 2][t ^ 32];  // finds R104 warp=0 lanes=0xffffffff
        __syncthreads();
    }
    o[t] = sum;
    o[64 + t] = o[128 + t] = 0.0f;
}
