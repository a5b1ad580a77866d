// Rotary position embedding: a template over the element type, all parameters in one struct passed by value.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Rotates the pairs (x[d], x[d + D/2]) of every token by the angle position · base^(-2d / D).
template <typename T>
struct Rotary {
    const T* x;            // (tokens, heads, D)
    T* out;                // the same shape
    const int* positions;  // (tokens)
    int tokens;
    int heads;
    int D;
    float base;
    float scale;           // of the result
    bool inverse;          // rotate back
};

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void store(float* address, float x) { *address = x; }
__device__ __forceinline__ void store(half* address, float x) { *address = __float2half_rn(x); }
__device__ __forceinline__ void store(__nv_bfloat16* address, float x) { *address = __float2bfloat16_rn(x); }

// Grid (tokens, heads), one thread per pair with a stride of the block.
template <typename T>
__global__ void rotary(const __grid_constant__ Rotary<T> p) {
    const size_t row = (static_cast<size_t>(blockIdx.x) * p.heads + blockIdx.y) * p.D;
    const float position = static_cast<float>(p.positions[blockIdx.x]);
    for (int d = threadIdx.x; d < p.D / 2; d += blockDim.x) {
        const float angle = position * powf(p.base, -2.0f * d / p.D);
        float sine;
        float cosine;
        sincosf(angle, &sine, &cosine);
        if (p.inverse) sine = -sine;
        const float first = to_float(p.x[row + d]);
        const float second = to_float(p.x[row + d + p.D / 2]);
        store(p.out + row + d, (first * cosine - second * sine) * p.scale);
        store(p.out + row + d + p.D / 2, (first * sine + second * cosine) * p.scale);
    }
}
