// Three floats of every four are set in shared memory and read as one vector; the bad kernel uses the fourth.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  use(x, o) grid(1) block(32)

extern "C" __global__ void use(const float* x, float* o) {
    __shared__ float4 tile[32];
    const int t = threadIdx.x;
    tile[t].x = x[t];
    tile[t].y = 2.0f * x[t];
    tile[t].z = 3.0f * x[t];
    __syncthreads();
    float4 v;
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(tile + (t ^ 1)));
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"  // finds I201 name=tile warp=0 lanes=0xffffffff
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from));
    o[t] = v.x + v.y + (BUG ? v.w : v.z);
}
