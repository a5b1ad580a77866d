// A warp publishes its result through a volatile flag; without fences the data may come later than the flag.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ float data;
    __shared__ volatile int flag;
    const int t = threadIdx.x;
    if (t == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        data = x[0];  // other
        if (!BUG) __threadfence_block();
        flag = 1;
    }
    if (t == 32) {
        while (flag == 0) {}
        if (!BUG) __threadfence_block();
        o[t] = data;  // finds R102 warp=1 lanes=0x1
    } else {
        o[t] = 0.0f;
    }
}
