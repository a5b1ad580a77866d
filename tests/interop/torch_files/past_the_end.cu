// A bug, so that a finding has a line: `<=` instead of `<`. Half in device code by PyTorch's name, ATen's macros.
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

C10_LAUNCH_BOUNDS_1(256)
__global__ void negate(const at::Half* x, at::Half* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        y[i] = -x[i];
    }
}

at::Tensor forward(at::Tensor x) {
    at::Tensor y = at::empty_like(x);
    const int n = x.numel();
    negate<<<at::ceil_div(n, 256), 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<at::Half>(), y.data_ptr<at::Half>(), n);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
