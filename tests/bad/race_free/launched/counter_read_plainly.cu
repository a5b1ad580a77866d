// CTAs count what they find; a plain read among the atomics may give any number.
// weft: define  BUG = 1
// weft: in      x : f32[128] = normal
// weft: inout   counter : u32[1] = zeros
// weft: out     o : u32[4]
// weft: launch  kernel(x, counter, o) grid(4) block(32)

extern "C" __global__ void kernel(const float* x, unsigned* counter, unsigned* o) {
    if (x[32 * blockIdx.x + threadIdx.x] > 0.0f) atomicAdd(counter, 1u);  // other
    if (threadIdx.x == 0) o[blockIdx.x] = BUG ? *counter : atomicAdd(counter, 0u);  // finds R102 warp=0 lanes=0x1
}
