// Halves are stored one by one and read in pairs; the bad kernel leaves out the odd ones.
template <int STEP>
__device__ void run(float* out) {
    __shared__ unsigned short halves[128];
    for (int i = STEP * threadIdx.x; i < 128; i += 64 * STEP) halves[i] = static_cast<unsigned short>(i);
    __syncthreads();
    const unsigned pair = reinterpret_cast<const unsigned*>(halves)[threadIdx.x];  // finds I201
    out[threadIdx.x] = static_cast<float>(pair);
}

extern "C" __global__ void bad(float* out) { run<2>(out); }
extern "C" __global__ void twin(float* out) { run<1>(out); }
