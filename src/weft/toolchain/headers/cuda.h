// The driver's API is host code; kernels include this header for its version macro.
#pragma once
#define CUDA_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
