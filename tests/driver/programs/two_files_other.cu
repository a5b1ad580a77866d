// The second file of two_files.cu.
#include "check.cuh"

__device__ int offset = 1;

__device__ int scaled(int value) { return 3 * value; }

void set_offset(int value) { OK(cudaMemcpyToSymbol(offset, &value, sizeof value)); }
