// Two warps write the same value by different instructions: the order does not matter, so it is an info.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float flag;
    const int t = threadIdx.x;
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&flag));
    if (t == 0) asm volatile("st.shared.f32 [%0], 0f3F800000;  // first" ::"r"(at) : "memory");  // other
    if (!BUG) __syncthreads();
    if (t == 32) asm volatile("st.shared.f32 [%0], 0f3F800000;  // second" ::"r"(at) : "memory");  // finds R101 warp=1 lanes=0x1 level=info
    __syncthreads();
    o[t] = x[t] + flag;
}
