// Each thread waits for its own copies only: the others' need a barrier too.
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
    copy(&tile[t], x + t);
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (!BUG) __syncthreads();
    o[t] = tile[t ^ 32];  // finds R104 warp=1 lanes=0xffffffff
}
