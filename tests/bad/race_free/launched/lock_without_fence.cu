// A counter guarded by a lock: releasing it without a fence does not publish the counter.
// weft: define  BUG = 1
// weft: in      x : f32[64] = normal
// weft: out     o : f32[64]
// weft: launch  kernel(x, o) grid(1) block(64)

extern "C" __global__ void kernel(const float* x, float* o) {
    __shared__ int lock;
    __shared__ float total;
    const int t = threadIdx.x;
    if (t == 0) {
        lock = 0;
        total = 0.0f;
    }
    __syncthreads();
    if (t % 32 == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {}
        if (!BUG) __threadfence_block();
        total = total + x[t];  // finds R102 warp=1 lanes=0x1
        if (!BUG) __threadfence_block();
        atomicExch(&lock, 0);
    }
    __syncthreads();
    o[64 * blockIdx.x + t] = total;
}
