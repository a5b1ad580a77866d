// Every thread reads a float of the tile; the loop that fills it stops four floats early.
template <int COUNT>
__device__ void run(float* out) {
    __shared__ float tile[64];
    for (int i = threadIdx.x; i < COUNT; i += 64) tile[i] = static_cast<float>(i);
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];  // finds I201
}

extern "C" __global__ void bad(float* out) { run<60>(out); }
extern "C" __global__ void twin(float* out) { run<64>(out); }
