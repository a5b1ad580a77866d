// Each warp reads what the other wrote.
template <bool BARRIER>
__device__ void run(float* out) {
    __shared__ float tile[64];
    tile[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (BARRIER) __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x ^ 32];  // finds R102
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
