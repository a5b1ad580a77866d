// The host code does not state the shapes of gamma and beta, which it never reads, and eps, which the caller gives.
#include <torch/extension.h>

__global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int D, float eps) {
    __shared__ float sums[2];
    if (threadIdx.x < 2) sums[threadIdx.x] = 0.0f;
    __syncthreads();
    const float* row = x + size_t(blockIdx.x) * D;
    float sum = 0.0f, squares = 0.0f;
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        sum += row[d];
        squares += row[d] * row[d];
    }
    atomicAdd(&sums[0], sum);
    atomicAdd(&sums[1], squares);
    __syncthreads();
    const float mean = sums[0] / D, inverse = rsqrtf(sums[1] / D - mean * mean + eps);
    for (int d = threadIdx.x; d < D; d += blockDim.x)
        y[size_t(blockIdx.x) * D + d] = (row[d] - mean) * inverse * gamma[d] + beta[d];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor gamma, torch::Tensor beta, double eps) {
    const auto D = x.size(-1);
    const auto rows = x.numel() / D;
    auto y = torch::empty_like(x);
    layer_norm<<<rows, std::min<int64_t>(D, 256)>>>(x.data_ptr<float>(), gamma.data_ptr<float>(),
                                                    beta.data_ptr<float>(), y.data_ptr<float>(), D, eps);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
