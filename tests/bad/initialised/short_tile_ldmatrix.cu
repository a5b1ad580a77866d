// Four 8 x 8 matrices of halves; the bad kernel does not fill the last row.
template <int ROWS>
__device__ void run(float* out) {
    __shared__ __align__(128) unsigned tile[32][4];
    if (threadIdx.x < ROWS) *reinterpret_cast<uint4*>(tile[threadIdx.x]) = make_uint4(1, 2, 3, 4);
    __syncthreads();
    const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(tile[threadIdx.x % 32]));
    unsigned a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  // finds I201
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(row));
    out[threadIdx.x] = static_cast<float>(a + b + c + d);
}

extern "C" __global__ void bad(float* out) { run<31>(out); }
extern "C" __global__ void twin(float* out) { run<32>(out); }
