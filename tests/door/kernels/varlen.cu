// Packed sequences of different lengths, with their bounds: the tasks have no such inputs.
#include <torch/extension.h>

__global__ void varlen_kernel(const float* q, const float* k, const float* v, float* o, const int* cu_seqlens, int heads,
                              int d, float scale) {
    const int begin = cu_seqlens[blockIdx.y], end = cu_seqlens[blockIdx.y + 1];
    for (int row = begin + threadIdx.x; row < end; row += blockDim.x) {
        float m = -INFINITY, l = 0.f, acc[128] = {};
        for (int j = begin; j < end; j++) {
            float s = 0.f;
            for (int x = 0; x < d; x++) s += q[((size_t)row * heads + blockIdx.x) * d + x] * k[((size_t)j * heads + blockIdx.x) * d + x];
            const float m_new = fmaxf(m, s * scale), f = expf(m - m_new), p = expf(s * scale - m_new);
            l = l * f + p;
            for (int x = 0; x < d; x++) acc[x] = acc[x] * f + p * v[((size_t)j * heads + blockIdx.x) * d + x];
            m = m_new;
        }
        for (int x = 0; x < d; x++) o[((size_t)row * heads + blockIdx.x) * d + x] = acc[x] / l;
    }
}

torch::Tensor varlen_forward(torch::Tensor q, torch::Tensor k, torch::Tensor v, torch::Tensor cu_seqlens) {
    const int total = q.size(0), heads = q.size(1), d = q.size(2), batch = cu_seqlens.size(0) - 1;
    auto o = torch::empty({total, heads, d}, q.options());
    varlen_kernel<<<dim3(heads, batch), 64>>>(q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
                                              o.data_ptr<float>(), cu_seqlens.data_ptr<int>(), heads, d, 1.f / sqrtf(d));
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("varlen_forward", &varlen_forward); }
