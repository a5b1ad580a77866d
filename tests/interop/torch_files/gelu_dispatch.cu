// The style of PyTorch's own tutorial: one dispatch macro, numel, a lambda in parentheses.
#include <torch/extension.h>

#include <cuda.h>
#include <cuda_runtime.h>

#include <vector>

template <typename scalar_t>
__device__ __forceinline__ scalar_t gelu(scalar_t x) {
    const float v = static_cast<float>(x);
    return static_cast<scalar_t>(0.5f * v * (1.0f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v))));
}

template <typename scalar_t>
__global__ void gelu_kernel(const scalar_t* __restrict__ input, scalar_t* __restrict__ output, int64_t size) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index < size) {
        output[index] = gelu(input[index]);
    }
}

torch::Tensor gelu_cuda(torch::Tensor input) {
    TORCH_CHECK(input.is_cuda(), "input must be a CUDA tensor");
    auto output = torch::empty_like(input);
    const int threads = 256;
    const int64_t size = input.numel();
    const int blocks = (size + threads - 1) / threads;

    AT_DISPATCH_FLOATING_TYPES_AND_HALF(input.scalar_type(), "gelu_cuda", ([&] {
        gelu_kernel<scalar_t><<<blocks, threads>>>(
            input.data_ptr<scalar_t>(),
            output.data_ptr<scalar_t>(),
            size);
    }));
    return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &gelu_cuda, "GELU (CUDA)");
}
