// A tile is refilled while the other warp may still read it.
template <bool BARRIER>
__device__ void run(float* out) {
    __shared__ float tile[64];
    float sum = 0.0f;
    for (int step = 0; step < 3; ++step) {
        tile[threadIdx.x] = static_cast<float>(step);  // finds R103
        __syncthreads();
        sum += tile[threadIdx.x ^ 32];
        if (BARRIER) __syncthreads();
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
