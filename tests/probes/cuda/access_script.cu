// Threads execute a script: per step and thread a verb (0 nothing, 1 load, 2 store, 3 atomicAdd, 4 store what all threads
// stores in this step and the one after the next) and a byte offset; after each step one of: nothing, a barrier of the CTA, one of every warp, one of its halves, one of warps 0 and 1, or
// warp 0 arrives for warp 1. Accesses are written in PTX: they are weak, and none is optimised away.
template <typename T>
__device__ void touch(unsigned char* shared, int step, int verb, int offset, float* out) {
    T* place = reinterpret_cast<T*>(shared + offset);
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(place));
    if (verb == 1) {
        unsigned long long value = 0;
        if constexpr (sizeof(T) == 1) asm volatile("ld.shared.u8 %0, [%1];" : "=l"(value) : "r"(at) : "memory");
        if constexpr (sizeof(T) == 2) asm volatile("ld.shared.u16 %0, [%1];" : "=l"(value) : "r"(at) : "memory");
        if constexpr (sizeof(T) == 4) asm volatile("ld.shared.u32 %0, [%1];" : "=l"(value) : "r"(at) : "memory");
        if constexpr (sizeof(T) == 8) asm volatile("ld.shared.u64 %0, [%1];" : "=l"(value) : "r"(at) : "memory");
        if (value == 251) out[0] = 1.0f;
    } else if (verb == 2 || verb == 4) {
        // Either no thread writes what another thread writes, or all threads do.
        const unsigned long long value = verb == 2 ? threadIdx.x + 1 : 200 + step % 2;
        if constexpr (sizeof(T) == 1) asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "l"(value) : "memory");
        if constexpr (sizeof(T) == 2) asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "l"(value) : "memory");
        if constexpr (sizeof(T) == 4) asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "l"(value) : "memory");
        if constexpr (sizeof(T) == 8) asm volatile("st.shared.u64 [%0], %1;" ::"r"(at), "l"(value) : "memory");
    } else if (verb == 3) {
        if constexpr (sizeof(T) >= 4) atomicAdd(place, T(1));
    }
}

template <typename T>
__global__ void script(const int* verbs, const int* offsets, const int* meetings, int steps, float* out) {
    __shared__ __align__(16) unsigned char shared[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) shared[i] = 0;
    __syncthreads();
    const int warp = threadIdx.x / 32;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const int at = step * blockDim.x + threadIdx.x;
        touch<T>(shared, step, verbs[at], offsets[at], out);
        switch (meetings[step]) {
            case 1: __syncthreads(); break;
            case 2: __syncwarp(); break;
            case 3: __syncwarp(threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u); break;
            case 4:
                if (warp < 2) asm volatile("bar.sync 1, 64;" ::: "memory");
                break;
            case 5:
                if (warp == 0) asm volatile("bar.arrive 2, 64;" ::: "memory");
                if (warp == 1) asm volatile("bar.sync 2, 64;" ::: "memory");
                break;
        }
    }
}
