// A counter in shared memory that is never set to zero.
template <bool ZERO>
__device__ void run(float* out) {
    __shared__ unsigned counter;
    if (ZERO && threadIdx.x == 0) counter = 0;
    __syncthreads();
    atomicAdd(&counter, 1u);  // finds I201
    __syncthreads();
    out[threadIdx.x] = static_cast<float>(counter);
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
