// Atomics of several warps do not race; a plain read among them does.
template <bool BARRIER>
__device__ void run(float* out) {
    __shared__ unsigned counter;
    if (threadIdx.x == 0) counter = 0;
    __syncthreads();
    atomicAdd(&counter, 1u);
    if (BARRIER) __syncthreads();
    if (threadIdx.x >= 32) out[threadIdx.x] = static_cast<float>(counter);  // finds R102
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
