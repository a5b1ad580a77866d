// Two warps write the same words; the bad kernel lets them do it in the same phase.
template <bool BARRIER>
__device__ void run(float* out) {
    __shared__ float tile[32];
    const unsigned lane = threadIdx.x % 32;
    if (threadIdx.x < 32) tile[lane] = 1.0f;
    if (BARRIER) __syncthreads();
    if (threadIdx.x >= 32) tile[lane] = 2.0f;  // finds R101
    __syncthreads();
    out[threadIdx.x] = tile[lane];
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
