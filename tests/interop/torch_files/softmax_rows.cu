// dim3 variables, a cdiv helper, shared memory by the size of a block, PyTorch's stream, checks on the shape.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#define ROWS_PER_BLOCK 4
#define CHECK_INPUT(x) TORCH_CHECK((x).is_cuda() && (x).is_contiguous(), #x " must be a contiguous CUDA tensor")

namespace softmax {

constexpr int WARP = 32;

static inline int cdiv(int a, int b) { return (a + b - 1) / b; }

__device__ float warp_max(float x) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

__device__ float warp_sum(float x) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// One warp per row; the row stays in shared memory between the two passes.
__global__ void __launch_bounds__(WARP * ROWS_PER_BLOCK) rows_kernel(const float* x, float* y, int rows, int cols) {
    extern __shared__ float tile[];
    const int row = blockIdx.x * ROWS_PER_BLOCK + threadIdx.y;
    if (row >= rows) return;
    float* const mine = tile + threadIdx.y * cols;
    float top = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += WARP) {
        mine[c] = x[row * cols + c];
        top = fmaxf(top, mine[c]);
    }
    top = warp_max(top);
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += WARP) {
        mine[c] = expf(mine[c] - top);
        sum += mine[c];
    }
    sum = warp_sum(sum);
    for (int c = threadIdx.x; c < cols; c += WARP) y[row * cols + c] = mine[c] / sum;
}

}  // namespace softmax

torch::Tensor softmax_forward(const torch::Tensor& x) {
    CHECK_INPUT(x);
    TORCH_CHECK(x.dim() == 2, "x must be a matrix, it has ", x.dim(), " dimensions");
    TORCH_CHECK(x.dtype() == torch::kFloat32, "x must be float32");
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    const int rows = x.size(0), cols = x.size(1);
    auto y = torch::empty({rows, cols}, x.options());
    dim3 grid(softmax::cdiv(rows, ROWS_PER_BLOCK));
    dim3 block(softmax::WARP, ROWS_PER_BLOCK);
    const size_t smem = ROWS_PER_BLOCK * cols * sizeof(float);
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    softmax::rows_kernel<<<grid, block, smem, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, cols);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

TORCH_LIBRARY(softmax_rows, m) {
    m.def("forward(Tensor x) -> Tensor");
    m.impl("forward", torch::kCUDA, &softmax_forward);
}
