// bf16; the project's own dispatch macro chooses the head dimension.
#include <torch/extension.h>
#include <cuda_bf16.h>

#define DISPATCH_HEAD_DIM(head_dim, HEAD_DIM, ...)      \
    [&] {                                               \
        if (head_dim == 32) {                           \
            constexpr int HEAD_DIM = 32;                \
            return __VA_ARGS__();                       \
        } else if (head_dim == 64) {                    \
            constexpr int HEAD_DIM = 64;                \
            return __VA_ARGS__();                       \
        } else if (head_dim == 128) {                   \
            constexpr int HEAD_DIM = 128;               \
            return __VA_ARGS__();                       \
        } else {                                        \
            TORCH_CHECK(false, "head_dim not supported"); \
        }                                               \
    }()

constexpr int kRows = 32;
constexpr int kKeys = 32;

template <int HEAD_DIM>
__global__ void __launch_bounds__(kRows) fwd_kernel(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                                    const __nv_bfloat16* v, __nv_bfloat16* o, int n, float scale) {
    __shared__ __nv_bfloat16 k_smem[kKeys][HEAD_DIM];
    __shared__ __nv_bfloat16 v_smem[kKeys][HEAD_DIM];
    const size_t head = (size_t)blockIdx.y * n * HEAD_DIM;
    const int row = blockIdx.x * kRows + threadIdx.x;
    float q_reg[HEAD_DIM], acc[HEAD_DIM];
    for (int d = 0; d < HEAD_DIM; d++) {
        q_reg[d] = row < n ? __bfloat162float(q[head + (size_t)row * HEAD_DIM + d]) * scale : 0.f;
        acc[d] = 0.f;
    }
    float m_i = -INFINITY, l_i = 0.f;
    for (int start = 0; start < n; start += kKeys) {
        for (int x = threadIdx.x; x < kKeys * HEAD_DIM; x += kRows) {
            const int j = x / HEAD_DIM, d = x % HEAD_DIM;
            const bool inside = start + j < n;
            k_smem[j][d] = inside ? k[head + (size_t)(start + j) * HEAD_DIM + d] : __float2bfloat16(0.f);
            v_smem[j][d] = inside ? v[head + (size_t)(start + j) * HEAD_DIM + d] : __float2bfloat16(0.f);
        }
        __syncthreads();
        float s[kKeys], m_tile = m_i;
        for (int j = 0; j < kKeys; j++) {
            float dot = 0.f;
            for (int d = 0; d < HEAD_DIM; d++) dot += q_reg[d] * __bfloat162float(k_smem[j][d]);
            s[j] = start + j < n ? dot : -INFINITY;
            m_tile = fmaxf(m_tile, s[j]);
        }
        const float alpha = __expf(m_i - m_tile);
        l_i *= alpha;
        for (int d = 0; d < HEAD_DIM; d++) acc[d] *= alpha;
        for (int j = 0; j < kKeys; j++) {
            const float p = __expf(s[j] - m_tile);
            l_i += p;
            for (int d = 0; d < HEAD_DIM; d++) acc[d] += p * __bfloat162float(v_smem[j][d]);
        }
        m_i = m_tile;
        __syncthreads();
    }
    if (row < n)
        for (int d = 0; d < HEAD_DIM; d++) o[head + (size_t)row * HEAD_DIM + d] = __float2bfloat16(acc[d] / l_i);
}

torch::Tensor mha_fwd(torch::Tensor q, torch::Tensor k, torch::Tensor v, double softmax_scale) {
    TORCH_CHECK(q.scalar_type() == torch::kBFloat16);
    TORCH_CHECK(q.sizes() == k.sizes() && k.sizes() == v.sizes());
    const int b = q.size(0), h = q.size(1), n = q.size(2), head_dim = q.size(3);
    torch::Tensor out = torch::empty_like(q);
    DISPATCH_HEAD_DIM(head_dim, HEAD_DIM, [&] {
        fwd_kernel<HEAD_DIM><<<dim3((n + kRows - 1) / kRows, b * h), kRows>>>(
            reinterpret_cast<const __nv_bfloat16*>(q.data_ptr()), reinterpret_cast<const __nv_bfloat16*>(k.data_ptr()),
            reinterpret_cast<const __nv_bfloat16*>(v.data_ptr()), reinterpret_cast<__nv_bfloat16*>(out.data_ptr()), n,
            (float)softmax_scale);
    });
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("fwd", &mha_fwd); }
