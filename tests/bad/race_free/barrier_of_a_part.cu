// A barrier of 32 threads orders that warp with no other warp.
template <bool WHOLE>
__device__ void run(float* out) {
    __shared__ float tile[32];
    const unsigned lane = threadIdx.x % 32;
    if (threadIdx.x < 32) {
        tile[lane] = 1.0f;
        if (!WHOLE) asm volatile("bar.sync 1, 32;" ::: "memory");
    }
    if (WHOLE) asm volatile("bar.sync 1, 64;" ::: "memory");
    if (threadIdx.x >= 32) out[lane] = tile[lane];  // finds R102
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
