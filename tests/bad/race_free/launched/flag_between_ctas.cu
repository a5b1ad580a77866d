// The CTA with the first ticket produces, the other waits for the flag; without fences the data may come after it.
// weft: define  BUG = 1
// weft: in      x : f32[32] = normal
// weft: inout   counter : u32[2] = zeros
// weft: inout   data : f32[32] = zeros
// weft: out     o : f32[32]
// weft: launch  kernel(x, counter, data, o) grid(2) block(32)

extern "C" __global__ void kernel(const float* x, unsigned* counter, float* data, float* o) {
    const int t = threadIdx.x;
    unsigned ticket = t == 0 ? atomicAdd(counter, 1u) : 0u;
    ticket = __shfl_sync(0xffffffffu, ticket, 0);
    volatile unsigned* flag = counter + 1;
    if (ticket == 0) {
        data[t] = x[t] + 1.0f;  // other
        __syncwarp();
        if (!BUG) __threadfence();
        if (t == 0) *flag = 1;
    } else {
        if (t == 0) {
            while (*flag == 0) {}
            if (!BUG) __threadfence();
        }
        __syncwarp();
        o[t] = data[t];  // finds R102 warp=0 lanes=0xffffffff
    }
}
