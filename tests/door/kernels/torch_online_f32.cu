// One thread per query row, online softmax; a simple PyTorch extension.
#include <torch/extension.h>
#include <cuda_runtime.h>

#define CHECK_INPUT(x) TORCH_CHECK(x.is_cuda() && x.is_contiguous(), #x " must be a contiguous CUDA tensor")

constexpr int MAX_D = 128;

__global__ void attention_kernel(const float* __restrict__ q, const float* __restrict__ k,
                                 const float* __restrict__ v, float* __restrict__ o,
                                 int N, int D, float scale) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= N) return;
    long head = (long)blockIdx.y * N * D;
    float acc[MAX_D];
    for (int d = 0; d < D; ++d) acc[d] = 0.f;
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < N; ++j) {
        float s = 0.f;
        for (int d = 0; d < D; ++d) s += q[head + row * D + d] * k[head + j * D + d];
        s *= scale;
        float m_new = fmaxf(m, s);
        float correction = expf(m - m_new);
        float p = expf(s - m_new);
        l = l * correction + p;
        for (int d = 0; d < D; ++d) acc[d] = acc[d] * correction + p * v[head + j * D + d];
        m = m_new;
    }
    for (int d = 0; d < D; ++d) o[head + row * D + d] = acc[d] / l;
}

torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    CHECK_INPUT(q);
    CHECK_INPUT(k);
    CHECK_INPUT(v);
    const int B = q.size(0), H = q.size(1), N = q.size(2), D = q.size(3);
    TORCH_CHECK(D <= MAX_D, "head dimension too large");
    auto o = torch::empty_like(q);
    const float scale = 1.0f / sqrtf((float)D);
    dim3 block(64);
    dim3 grid((N + block.x - 1) / block.x, B * H);
    attention_kernel<<<grid, block>>>(q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
                                      o.data_ptr<float>(), N, D, scale);
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "attention forward");
}
