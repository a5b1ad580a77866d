// A cooperative launch: all blocks wait for each other. Too many blocks are refused by the driver.
#include <cooperative_groups.h>

#include "check.cuh"

__global__ void rotate(int *x, int n, int rounds) {
    auto grid = cooperative_groups::this_grid();
    int i = grid.thread_rank();
    for (int round = 0; round < rounds; round++) {
        int value = i < n ? x[(i + 1) % n] : 0;
        grid.sync();
        if (i < n) x[i] = value;
        grid.sync();
    }
}

int main() {
    int n = 300, rounds = 5, *x, host[300];
    int supported, multiprocessors, per_multiprocessor;
    OK(cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0));
    OK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    REQUIRE(supported);
    for (int i = 0; i < n; i++) host[i] = i;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    void *arguments[] = {&x, &n, &rounds};
    OK(cudaLaunchCooperativeKernel((const void *)rotate, 5, 64, arguments, 0, 0));
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == (i + rounds) % n);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, rotate, 64, 0));
    int most = per_multiprocessor * multiprocessors;
    REQUIRE(cudaLaunchCooperativeKernel((const void *)rotate, most + 1, 64, arguments, 0, 0) == cudaErrorCooperativeLaunchTooLarge);
    REQUIRE(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    config.gridDim = 5;
    config.blockDim = 64;
    config.attrs = &attribute;
    config.numAttrs = 1;
    OK(cudaLaunchKernelEx(&config, rotate, x, n, rounds));
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == (i + 2 * rounds) % n);
    std::puts("ok");
}
