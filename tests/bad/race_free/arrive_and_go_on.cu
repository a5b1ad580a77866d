// Warp 0 arrives at the barrier without waiting and then writes: the barrier orders only what came before it.
template <bool WAIT>
__device__ void run(float* out) {
    __shared__ float tile[32];
    const unsigned lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        tile[lane] = 1.0f;
        if (WAIT) {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            asm volatile("bar.sync 2, 64;" ::: "memory");
        } else {
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        }
        tile[lane] = 2.0f;
        if (!WAIT) asm volatile("bar.sync 2, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[lane] = tile[lane];  // finds R102
        asm volatile("bar.sync 2, 64;" ::: "memory");
    }
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
