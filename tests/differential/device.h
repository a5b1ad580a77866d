// The device's side: CUDA's own intrinsics.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>
#define FN static __device__ __forceinline__
#define CALLED static __device__ __noinline__
#define WITHIN static __device__

FN float lesser(float a, float b) { return fminf(a, b); }
FN float greater(float a, float b) { return fmaxf(a, b); }
FN double lesser(double a, double b) { return fmin(a, b); }
FN double greater(double a, double b) { return fmax(a, b); }
