// Threads carry out a script: per step and thread a verb (0 nothing, 1 load, 2 store, 3 atomicAdd) and a byte offset;
// a barrier of the CTA after the steps that say so.
template <typename T>
__device__ void touch(unsigned char* shared, int verb, int offset, float* out) {
    T* place = reinterpret_cast<T*>(shared + offset);
    if (verb == 1) {
        T value = *const_cast<const volatile T*>(place);
        if (value == T(123)) out[0] = 1.0f;
    } else if (verb == 2) {
        *const_cast<volatile T*>(place) = T(1);
    } else if (verb == 3) {
        if constexpr (sizeof(T) >= 4) atomicAdd(place, T(1));
    }
}

template <typename T>
__global__ void script(const int* verbs, const int* offsets, const int* barriers, int steps, float* out) {
    __shared__ __align__(16) unsigned char shared[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) shared[i] = 0;
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        const int at = step * blockDim.x + threadIdx.x;
        touch<T>(shared, verbs[at], offsets[at], out);
        if (barriers[step]) __syncthreads();
    }
}
