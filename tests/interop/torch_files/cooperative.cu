// Arguments packed into an array of void pointers: they have no types to derive a line from.
#include <torch/extension.h>
#include <cooperative_groups.h>

__global__ void twice(float* x, int n) {
    cooperative_groups::this_grid().sync();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2.0f;
}

void forward(torch::Tensor x) {
    int n = x.numel();
    float* data = x.data_ptr<float>();
    void* arguments[] = {&data, &n};
    cudaLaunchCooperativeKernel((void*)twice, dim3((n + 255) / 256), dim3(256), arguments, 0, nullptr);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
