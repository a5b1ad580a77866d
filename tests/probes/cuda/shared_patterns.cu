// One access to shared memory per warp: lane t at byte offsets[t], or none where that is negative.
extern __shared__ __align__(1024) unsigned char dynamic_shared[];

__device__ unsigned place(const int* offsets) {
    return static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) + offsets[threadIdx.x];
}

extern "C" __global__ void load_2(const int* offsets, unsigned* out) {
    unsigned short a;
    if (offsets[threadIdx.x] >= 0) {
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(a) : "r"(place(offsets)));
        out[threadIdx.x] = a;
    }
}

extern "C" __global__ void load_4(const int* offsets, unsigned* out) {
    unsigned a;
    if (offsets[threadIdx.x] >= 0) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(place(offsets)));
        out[threadIdx.x] = a;
    }
}

extern "C" __global__ void load_8(const int* offsets, unsigned* out) {
    unsigned a, b;
    if (offsets[threadIdx.x] >= 0) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(place(offsets)));
        out[threadIdx.x] = a + b;
    }
}

extern "C" __global__ void load_16(const int* offsets, unsigned* out) {
    unsigned a, b, c, d;
    if (offsets[threadIdx.x] >= 0) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(place(offsets)));
        out[threadIdx.x] = a + b + c + d;
    }
}

extern "C" __global__ void store_4(const int* offsets, unsigned* out) {
    if (offsets[threadIdx.x] >= 0) asm volatile("st.shared.u32 [%0], %1;" ::"r"(place(offsets)), "r"(7));
}

extern "C" __global__ void store_8(const int* offsets, unsigned* out) {
    if (offsets[threadIdx.x] >= 0) asm volatile("st.shared.v2.u32 [%0], {%1, %1};" ::"r"(place(offsets)), "r"(7));
}

extern "C" __global__ void store_16(const int* offsets, unsigned* out) {
    if (offsets[threadIdx.x] >= 0) {
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(place(offsets)), "r"(7));
    }
}

extern "C" __global__ void ldmatrix_1(const int* offsets, unsigned* out) {
    unsigned a;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(place(offsets)));
    out[threadIdx.x] = a;
}

extern "C" __global__ void ldmatrix_4(const int* offsets, unsigned* out) {
    unsigned a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(place(offsets)));
    out[threadIdx.x] = a + b + c + d;
}

// The same address in every lane, as the compiler can see.
extern "C" __global__ void uniform_16(const int* offsets, unsigned* out, int offset) {
    unsigned a, b, c, d;
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) + offset;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
    out[threadIdx.x] = a + b + c + d;
}

extern "C" __global__ void uniform_4(const int* offsets, unsigned* out, int offset) {
    unsigned a;
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(dynamic_shared)) + offset;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(at));
    out[threadIdx.x] = a;
}
