#pragma once

cudaError_t cudaGetLastError();
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int);

namespace c10::cuda {
void check(cudaError_t);
}

#define C10_CUDA_CHECK(...) ::c10::cuda::check(__VA_ARGS__)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
