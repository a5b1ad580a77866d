// Graphs: by capture of streams, by nodes, launched again, updated.
#include "check.cuh"

__device__ int limit = 3;

__global__ void increment(int *x, int by) { x[threadIdx.x] += by; }

__global__ void clamp(int *x) {
    if (x[threadIdx.x] > limit) x[threadIdx.x] = limit;
}

static void captured(int *x) {
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    int host[32];
    cudaStreamCaptureStatus status;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(x, 0, sizeof host, stream));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(other, fork, 0));
    increment<<<1, 32, 0, other>>>(x, 2);
    OK(cudaStreamIsCapturing(other, &status));
    REQUIRE(status == cudaStreamCaptureStatusActive);
    OK(cudaEventRecord(join, other));
    OK(cudaStreamWaitEvent(stream, join, 0));
    increment<<<1, 32, 0, stream>>>(x, 5);
    OK(cudaMemcpyAsync(host, x, sizeof host, cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(stream, &graph));
    size_t nodes = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    REQUIRE(nodes == 4);
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int times = 0; times < 3; times++) {
        for (int &value : host) value = -1;
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        for (int value : host) REQUIRE(value == 7);
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
}

static void by_nodes(int *x) {
    cudaGraph_t graph;
    cudaGraphNode_t fill, add, set, clamped, read;
    OK(cudaGraphCreate(&graph, 0));
    int host[32], by = 4, most = 1;
    cudaMemsetParams filled = {};
    filled.dst = x;
    filled.value = 10;
    filled.elementSize = 4;
    filled.width = 32;
    filled.height = 1;
    OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &filled));
    void *arguments[] = {&x, &by};
    cudaKernelNodeParams kernel = {};
    kernel.func = (void *)increment;
    kernel.gridDim = 1;
    kernel.blockDim = 32;
    kernel.kernelParams = arguments;
    OK(cudaGraphAddKernelNode(&add, graph, &fill, 1, &kernel));
    OK(cudaGraphAddMemcpyNodeToSymbol(&set, graph, nullptr, 0, limit, &most, sizeof most, 0, cudaMemcpyHostToDevice));
    cudaGraphNode_t both[] = {add, set};
    cudaKernelNodeParams second = kernel;
    second.func = (void *)clamp;
    OK(cudaGraphAddKernelNode(&clamped, graph, both, 2, &second));
    OK(cudaGraphAddMemcpyNode1D(&read, graph, &clamped, 1, host, x, sizeof host, cudaMemcpyDeviceToHost));
    cudaGraphExec_t exec;
    OK(cudaGraphInstantiate(&exec, graph, 0));
    most = 13;
    OK(cudaGraphLaunch(exec, 0));
    OK(cudaDeviceSynchronize());
    for (int value : host) REQUIRE(value == 13);
    by = -7;
    OK(cudaGraphExecKernelNodeSetParams(exec, add, &kernel));
    OK(cudaGraphLaunch(exec, 0));
    OK(cudaDeviceSynchronize());
    for (int value : host) REQUIRE(value == 3);
    REQUIRE(cudaGraphAddKernelNode(&add, graph, nullptr, 0, nullptr) == cudaErrorInvalidValue);
}

int main() {
    int *x;
    OK(cudaMalloc(&x, 32 * sizeof(int)));
    captured(x);
    by_nodes(x);
    std::puts("ok");
}
