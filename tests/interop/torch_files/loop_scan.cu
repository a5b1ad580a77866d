// The number of launches depends on the size: no fixed sequence of launch lines can express this.
#include <torch/extension.h>

__global__ void add_shifted(const float* x, float* y, int n, int shift) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i >= shift ? x[i] + x[i - shift] : x[i];
}

torch::Tensor scan(torch::Tensor x) {
    const int n = x.numel();
    auto a = x.clone(), b = torch::empty_like(x);
    for (int shift = 1; shift < n; shift *= 2) {
        add_shifted<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), n, shift);
        std::swap(a, b);
    }
    return a;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scan", &scan); }
