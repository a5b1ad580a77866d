// Attributes of the device and of kernels, dynamic shared memory beyond 48 KiB, occupancy.
#include <cstring>

#include "check.cuh"

__global__ void __launch_bounds__(256) reverse(int *x) {
    extern __shared__ int tile[];
    __shared__ int last;
    tile[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 0) last = blockDim.x - 1;
    __syncthreads();
    x[threadIdx.x] = tile[last - threadIdx.x];
}

static void device() {
    cudaDeviceProp properties;
    OK(cudaGetDeviceProperties(&properties, 0));
    REQUIRE(std::strstr(properties.name, "Weft virtual"));
    struct {
        cudaDeviceAttr attribute;
        long long shown;
    } rows[] = {
        {cudaDevAttrMaxThreadsPerBlock, properties.maxThreadsPerBlock},
        {cudaDevAttrMaxBlockDimZ, properties.maxThreadsDim[2]},
        {cudaDevAttrMaxGridDimY, properties.maxGridSize[1]},
        {cudaDevAttrMaxSharedMemoryPerBlock, (long long)properties.sharedMemPerBlock},
        {cudaDevAttrWarpSize, properties.warpSize},
        {cudaDevAttrTotalConstantMemory, (long long)properties.totalConstMem},
        {cudaDevAttrComputeCapabilityMajor, properties.major},
        {cudaDevAttrComputeCapabilityMinor, properties.minor},
        {cudaDevAttrMultiProcessorCount, properties.multiProcessorCount},
        {cudaDevAttrSurfaceAlignment, (long long)properties.surfaceAlignment},
        {cudaDevAttrAsyncEngineCount, properties.asyncEngineCount},
        {cudaDevAttrGlobalMemoryBusWidth, properties.memoryBusWidth},
        {cudaDevAttrL2CacheSize, properties.l2CacheSize},
        {cudaDevAttrMaxThreadsPerMultiProcessor, properties.maxThreadsPerMultiProcessor},
        {cudaDevAttrMaxRegistersPerMultiprocessor, properties.regsPerMultiprocessor},
        {cudaDevAttrManagedMemory, properties.managedMemory},
        {cudaDevAttrCooperativeLaunch, properties.cooperativeLaunch},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (long long)properties.sharedMemPerBlockOptin},
        {cudaDevAttrMaxBlocksPerMultiprocessor, properties.maxBlocksPerMultiProcessor},
        {cudaDevAttrReservedSharedMemoryPerBlock, (long long)properties.reservedSharedMemPerBlock},
        {cudaDevAttrMemoryPoolsSupported, properties.memoryPoolsSupported},
        {cudaDevAttrClusterLaunch, properties.clusterLaunch},
    };
    for (auto &row : rows) {
        int value;
        OK(cudaDeviceGetAttribute(&value, row.attribute, 0));
        REQUIRE(value == row.shown);
    }
    size_t available, total;
    OK(cudaMemGetInfo(&available, &total));
    REQUIRE(total == properties.totalGlobalMem && available <= total);
    int count, runtime, driver;
    OK(cudaGetDeviceCount(&count));
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&driver));
    REQUIRE(count == 1 && runtime / 1000 == CUDART_VERSION / 1000 && driver >= runtime);
}

int main() {
    device();
    cudaFuncAttributes attributes;
    OK(cudaFuncGetAttributes(&attributes, reverse));
    REQUIRE(attributes.maxThreadsPerBlock == 256 && attributes.sharedSizeBytes == 4);
    const int n = 256;
    int *x, host[n];
    for (int i = 0; i < n; i++) host[i] = i;
    OK(cudaMalloc(&x, sizeof host));
    OK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
    reverse<<<1, n, 60000>>>(x);
    REQUIRE(cudaGetLastError() == cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
    reverse<<<1, n, 60000>>>(x);
    OK(cudaGetLastError());
    OK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++) REQUIRE(host[i] == n - 1 - i);
    int blocks, grid, block;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, n, 40000));
    REQUIRE(blocks == 2);  // 100 KiB of the L4's multiprocessor hold two
    OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, reverse, 0, 0));
    REQUIRE(block <= 256 && block % 32 == 0 && grid > 0);
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult status;
    OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &status));
    REQUIRE(entry && status == cudaDriverEntryPointSuccess);
    std::puts("ok");
}
