// Columns beyond 20 are padding. A select leaves them out; a product with 0 does not (0 · NaN is NaN).
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: out     o : f32[32]
// weft: launch  mask(x, o) grid(1) block(32)

extern "C" __global__ void mask(const float* x, float* o) {
    __shared__ float tile[32];
    const int t = threadIdx.x;
    if (t < 20) tile[t] = x[t];
    __syncthreads();
    float v;
    const unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(tile + t));
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));  // finds I201 name=tile warp=0 lanes=0xfff00000
    o[t] = BUG ? v * (t < 20 ? 1.0f : 0.0f) : (t < 20 ? v : 0.0f);
}
