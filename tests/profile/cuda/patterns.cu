// One access per warp: lane t of CTA c at byte offsets[32 c + t], or none where that is negative.
extern __shared__ __align__(1024) unsigned char near[];

template <int BYTES> struct Word;
template <> struct Word<1> { using type = unsigned char; };
template <> struct Word<2> { using type = unsigned short; };
template <> struct Word<4> { using type = unsigned; };
template <> struct Word<8> { using type = uint2; };
template <> struct Word<16> { using type = uint4; };

template <int BYTES> __global__ void shared_load(const int* offsets, typename Word<BYTES>::type* out) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (offsets[i] >= 0) out[i] = *reinterpret_cast<const typename Word<BYTES>::type*>(near + offsets[i]);
}

template <int BYTES> __global__ void shared_store(const int* offsets, typename Word<BYTES>::type* out) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (offsets[i] >= 0) *reinterpret_cast<typename Word<BYTES>::type*>(near + offsets[i]) = out[i];
    __syncthreads();
    out[i] = *reinterpret_cast<typename Word<BYTES>::type*>(near);
}

template <int BYTES> __global__ void global_load(const int* offsets, typename Word<BYTES>::type* out, const char* far) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (offsets[i] >= 0) out[i] = *reinterpret_cast<const typename Word<BYTES>::type*>(far + offsets[i]);
}
