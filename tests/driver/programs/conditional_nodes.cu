// Conditional nodes by the runtime: a loop that halves a number, and a choice, with kernels, a copy and a memset in them.
#include "check.cuh"

__global__ void halve(int *x, cudaGraphConditionalHandle more) {
    *x /= 2;
    cudaGraphSetConditional(more, *x > 1);
}

__global__ void choose(const int *x, cudaGraphConditionalHandle which) { cudaGraphSetConditional(which, *x); }

int main() {
    int *x, *y, host = 40, back[2];
    OK(cudaMalloc(&x, sizeof *x));
    OK(cudaMalloc(&y, 2 * sizeof *y));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t loop, asked, branch, node;
    OK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle more, which;
    OK(cudaGraphConditionalHandleCreate(&more, graph, 1, cudaGraphCondAssignDefault));
    OK(cudaGraphConditionalHandleCreate(&which, graph));

    cudaGraphNodeParams given = {cudaGraphNodeTypeConditional};
    given.conditional.handle = more;
    given.conditional.type = cudaGraphCondTypeWhile;
    given.conditional.size = 1;
    OK(cudaGraphAddNode(&loop, graph, nullptr, nullptr, 0, &given));
    void *values[] = {&x, &more};
    cudaGraphNodeParams kernel = {cudaGraphNodeTypeKernel};
    kernel.kernel.func = (void *)halve;
    kernel.kernel.gridDim = kernel.kernel.blockDim = dim3(1);
    kernel.kernel.kernelParams = values;
    OK(cudaGraphAddNode(&node, given.conditional.phGraph_out[0], nullptr, nullptr, 0, &kernel));

    values[1] = &which;
    kernel.kernel.func = (void *)choose;
    OK(cudaGraphAddNode(&asked, graph, &loop, nullptr, 1, &kernel));
    given = {cudaGraphNodeTypeConditional};
    given.conditional.handle = which;
    given.conditional.type = cudaGraphCondTypeIf;
    given.conditional.size = 2;
    OK(cudaGraphAddNode(&branch, graph, &asked, nullptr, 1, &given));
    cudaGraph_t yes = given.conditional.phGraph_out[0], no = given.conditional.phGraph_out[1];
    cudaGraphNodeParams copy = {cudaGraphNodeTypeMemcpy}, fill = {cudaGraphNodeTypeMemset};
    copy.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(x, sizeof *x, 1, 1);
    copy.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(y + 1, sizeof *x, 1, 1);
    copy.memcpy.copyParams.extent = make_cudaExtent(sizeof *x, 1, 1);
    copy.memcpy.copyParams.kind = cudaMemcpyDeviceToDevice;
    OK(cudaGraphAddNode(&node, yes, nullptr, nullptr, 0, &copy));
    fill.memset.dst = y;
    fill.memset.value = 7;
    fill.memset.elementSize = sizeof *y;
    fill.memset.width = 2;
    fill.memset.height = 1;
    OK(cudaGraphAddNode(&node, no, nullptr, nullptr, 0, &fill));

    OK(cudaGraphInstantiate(&exec, graph));
    for (int first : {40, 0}) {
        host = first;
        OK(cudaMemcpy(x, &host, sizeof host, cudaMemcpyHostToDevice));
        OK(cudaMemset(y, 0, 2 * sizeof *y));
        OK(cudaGraphLaunch(exec, 0));
        OK(cudaMemcpy(back, y, sizeof back, cudaMemcpyDeviceToHost));
        REQUIRE(back[0] == (first ? 0 : 7) && back[1] == (first ? 1 : 7));
    }
    std::puts("ok");
}
