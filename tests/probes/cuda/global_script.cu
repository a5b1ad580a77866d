// CTAs execute a script: per step and thread a verb (0 nothing, 1 load, 2 store, 3 atomicAdd) and an offset in global
// memory; after each step one of: nothing, a barrier of the CTA, one of every warp and, if WAITS, a barrier of the grid
// or a signal from CTA 0 to CTA 1. Each barrier has its own counter: a late thread must not see a later one. Accesses are
// written in PTX: they are weak, and none is optimised away.
template <typename T>
__device__ void touch(unsigned char* memory, int verb, int offset, float* out) {
    T* at = reinterpret_cast<T*>(memory + offset);
    if (verb == 1) {
        unsigned long long value = 0;
        if constexpr (sizeof(T) == 1) asm volatile("ld.global.u8 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
        if constexpr (sizeof(T) == 2) asm volatile("ld.global.u16 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
        if constexpr (sizeof(T) == 4) asm volatile("ld.global.u32 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
        if constexpr (sizeof(T) == 8) asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
        if (value == 12345) out[0] = 1.0f;
    } else if (verb == 2) {
        // No thread writes what another thread writes.
        const unsigned long long value = blockIdx.x * blockDim.x + threadIdx.x + 1;
        if constexpr (sizeof(T) == 1) asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "l"(value) : "memory");
        if constexpr (sizeof(T) == 2) asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "l"(value) : "memory");
        if constexpr (sizeof(T) == 4) asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "l"(value) : "memory");
        if constexpr (sizeof(T) == 8) asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
    } else if (verb == 3) {
        if constexpr (sizeof(T) >= 4) atomicAdd(at, T(1));
    }
}

__device__ void whole_grid(unsigned* counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
        while (*static_cast<volatile unsigned*>(counter) < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
}

__device__ void signal(unsigned* flag) {
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        __threadfence();
        atomicExch(flag, 1u);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicAdd(flag, 0u) == 0) {}
        __threadfence();
    }
    __syncthreads();
}

template <typename T, bool WAITS>
__global__ void script(const int* verbs, const int* offsets, const int* meetings, int steps, unsigned char* memory,
                       unsigned* counters, float* out) {
    for (int step = 0; step < steps; ++step) {
        const int at = (step * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
        touch<T>(memory, verbs[at], offsets[at], out);
        switch (meetings[step]) {
            case 1: __syncthreads(); break;
            case 2: __syncwarp(); break;
            case 3: if constexpr (WAITS) whole_grid(counters + step); break;
            case 4: if constexpr (WAITS) signal(counters + step); break;
        }
    }
}
