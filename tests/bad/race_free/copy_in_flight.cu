// A barrier does not wait for asynchronous copies: the bad kernel reads before they have arrived.
template <bool WAIT>
__device__ void run(float* out) {
    __shared__ __align__(16) float tile[64];
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(out + threadIdx.x) : "memory");
    if (WAIT) asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    const float other = tile[threadIdx.x ^ 32];  // finds R104
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = other;
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
