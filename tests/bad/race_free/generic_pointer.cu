// The pointer may lead to shared or global memory, so the compiler uses generic accesses.
template <bool BARRIER>
__device__ void run(float* out) {
    __shared__ float tile[64];
    float* place = threadIdx.x < 48 ? tile : out + 64;
    asm volatile("" : "+l"(place));
    place[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (BARRIER) __syncthreads();
    out[threadIdx.x] = threadIdx.x < 32 ? 0.0f : place[threadIdx.x ^ 32];  // finds R102
}

extern "C" __global__ void bad(float* out) { run<false>(out); }
extern "C" __global__ void twin(float* out) { run<true>(out); }
