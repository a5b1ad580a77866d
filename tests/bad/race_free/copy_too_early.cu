// The next stage's copy is issued before the barrier that ends the reads of its buffer. That barrier comes before the
// wait, so in the order in which the data moves here the result is right.
template <bool EARLY>
__device__ void run(float* out) {
    __shared__ __align__(16) float tile[64];
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
    tile[threadIdx.x] = static_cast<float>(threadIdx.x);
    __syncthreads();
    const float other = tile[threadIdx.x ^ 32];
    if (!EARLY) __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(out + threadIdx.x) : "memory");  // finds R103
    if (EARLY) __syncthreads();
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = other + tile[threadIdx.x ^ 32];
}

extern "C" __global__ void bad(float* out) { run<true>(out); }
extern "C" __global__ void twin(float* out) { run<false>(out); }
