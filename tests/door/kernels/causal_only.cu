// A decoder's kernel: the code always applies the causal mask.
#include <torch/extension.h>

__global__ void causal_attention(const float* q, const float* k, const float* v, float* o, int T, int C, float scale) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= T) return;
    const size_t base = (size_t)blockIdx.y * T * C;
    float acc[128];
    for (int c = 0; c < C; c++) acc[c] = 0.f;
    float running_max = -INFINITY, running_sum = 0.f;
    for (int s = 0; s <= t; s++) {
        float logit = 0.f;
        for (int c = 0; c < C; c++) logit += q[base + (size_t)t * C + c] * k[base + (size_t)s * C + c];
        logit *= scale;
        const float new_max = fmaxf(running_max, logit);
        const float fix = expf(running_max - new_max);
        const float e = expf(logit - new_max);
        running_sum = running_sum * fix + e;
        for (int c = 0; c < C; c++) acc[c] = acc[c] * fix + e * v[base + (size_t)s * C + c];
        running_max = new_max;
    }
    for (int c = 0; c < C; c++) o[base + (size_t)t * C + c] = acc[c] / running_sum;
}

torch::Tensor causal_forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const int B = q.size(0), NH = q.size(1), T = q.size(2), C = q.size(3);
    TORCH_CHECK(C <= 128);
    auto o = torch::zeros_like(q);
    causal_attention<<<dim3((T + 31) / 32, B * NH), 32>>>(q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(),
                                                          o.data_ptr<float>(), T, C, 1.0f / sqrtf(C));
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("causal_forward", &causal_forward); }
