// A library's style: namespaces, helpers, an options struct on the host; half and float by a template.
#include <torch/extension.h>
#include <cuda_fp16.h>

namespace myattn {
namespace detail {

template <typename T>
__device__ __forceinline__ float to_float(T x);
template <>
__device__ __forceinline__ float to_float<float>(float x) { return x; }
template <>
__device__ __forceinline__ float to_float<__half>(__half x) { return __half2float(x); }

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(0xffffffffu, x, mask, 32);
    return x;
}

}  // namespace detail

template <typename T, int kThreads>
__global__ void forward_kernel(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                               T* __restrict__ out, int len, int dim, float scale) {
    const int lane = threadIdx.x & 31;
    const int row = blockIdx.x * (kThreads / 32) + (threadIdx.x >> 5);
    if (row >= len) return;
    const size_t base = (size_t)blockIdx.y * len * dim;
    float acc[4] = {0.f, 0.f, 0.f, 0.f};
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < len; ++j) {
        float part = 0.f;
        for (int d = lane; d < dim; d += 32)
            part += detail::to_float(q[base + (size_t)row * dim + d]) * detail::to_float(k[base + (size_t)j * dim + d]);
        const float s = detail::warp_sum(part) * scale;
        const float m_next = max(m, s);
        const float decay = exp2f((m - m_next) * 1.44269504f);
        const float p = exp2f((s - m_next) * 1.44269504f);
        l = l * decay + p;
        int i = 0;
        for (int d = lane; d < dim; d += 32, ++i) acc[i] = acc[i] * decay + p * detail::to_float(v[base + (size_t)j * dim + d]);
        m = m_next;
    }
    int i = 0;
    for (int d = lane; d < dim; d += 32, ++i) out[base + (size_t)row * dim + d] = T(acc[i] / l);
}

}  // namespace myattn

torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    TORCH_CHECK(q.is_contiguous() && k.is_contiguous() && v.is_contiguous());
    TORCH_CHECK(q.sizes() == k.sizes());
    TORCH_CHECK(q.sizes() == v.sizes());
    const int64_t batch = q.size(0), nheads = q.size(1), len = q.size(2), dim = q.size(3);
    auto out = torch::empty(q.sizes(), q.options());
    constexpr int kThreads = 128;
    const dim3 grid((len + kThreads / 32 - 1) / (kThreads / 32), batch * nheads);
    myattn::forward_kernel<__half, kThreads><<<grid, kThreads>>>(
        reinterpret_cast<__half*>(q.data_ptr<c10::Half>()), reinterpret_cast<__half*>(k.data_ptr<c10::Half>()),
        reinterpret_cast<__half*>(v.data_ptr<c10::Half>()), reinterpret_cast<__half*>(out.data_ptr<c10::Half>()), len, dim,
        1.0f / std::sqrt(static_cast<float>(dim)));
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
