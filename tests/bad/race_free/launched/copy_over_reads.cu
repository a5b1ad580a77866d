// The next tile is copied into the buffer while the other warp may still read the last one.
// weft: define  BUG = 1
// weft: in      x : f32[128] = normal
// weft: out     o : f32[128]
// weft: launch  kernel(x, o) grid(1) block(64)

__device__ void copy(float* to, const float* from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");  // finds R103 warp=1 lanes=0xffffffff
}

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float tile[64];
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < 2; ++i) {
        copy(&tile[t], x + 64 * i + t);
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        sum += tile[t ^ 32];  // other
        if (!BUG) __syncthreads();
    }
    o[t] = sum;
    o[64 + t] = 0.0f;
}
