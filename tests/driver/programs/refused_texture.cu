// CUDA arrays are not supported.
#include "check.cuh"

int main() {
    std::puts("before");
    std::fflush(stdout);
    cudaArray_t array;
    cudaChannelFormatDesc description = cudaCreateChannelDesc<float>();
    int code = cudaMallocArray(&array, &description, 16, 16);
    std::printf("returned %d %d\n", code, cudaGetLastError());
}
