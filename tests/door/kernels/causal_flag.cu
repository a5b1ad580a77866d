// The caller selects the mask; shapes [batch * heads, length, dim], as after a reshape in Python.
#include <torch/extension.h>
#include <cuda_fp16.h>

constexpr int Br = 16;
constexpr int Bc = 16;

__global__ void flash_fwd(const half* Q, const half* K, const half* V, half* O, int N, int d, float sm_scale, bool causal) {
    extern __shared__ half smem[];
    half* Qs = smem;
    half* Ks = Qs + Br * d;
    half* Vs = Ks + Bc * d;
    const int tid = threadIdx.x, tile = blockIdx.x;
    const size_t base = (size_t)blockIdx.y * N * d;
    const int row = tile * Br + tid;
    for (int x = 0; x < d; x++) Qs[tid * d + x] = row < N ? Q[base + (size_t)row * d + x] : __float2half(0.f);
    float acc[128];
    for (int x = 0; x < d; x++) acc[x] = 0.f;
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < N; j += Bc) {
        if (causal && j > tile * Br + Br - 1) break;
        __syncthreads();
        for (int x = 0; x < d; x++) {
            const bool ok = j + tid < N;
            Ks[tid * d + x] = ok ? K[base + (size_t)(j + tid) * d + x] : __float2half(0.f);
            Vs[tid * d + x] = ok ? V[base + (size_t)(j + tid) * d + x] : __float2half(0.f);
        }
        __syncthreads();
        for (int c = 0; c < Bc; c++) {
            const int col = j + c;
            if (col >= N || (causal && col > row)) continue;
            float s = 0.f;
            for (int x = 0; x < d; x++) s += __half2float(Qs[tid * d + x]) * __half2float(Ks[c * d + x]);
            s *= sm_scale;
            const float m_new = fmaxf(m, s), a = __expf(m - m_new), p = __expf(s - m_new);
            l = l * a + p;
            for (int x = 0; x < d; x++) acc[x] = acc[x] * a + p * __half2float(Vs[c * d + x]);
            m = m_new;
        }
    }
    if (row < N)
        for (int x = 0; x < d; x++) O[base + (size_t)row * d + x] = __float2half(acc[x] / l);
}

torch::Tensor flash_attention(torch::Tensor Q, torch::Tensor K, torch::Tensor V, bool causal) {
    int BH = Q.size(0), N = Q.size(1), d = Q.size(2);
    TORCH_CHECK(Q.dim() == 3, "expected [batch * heads, length, dim]");
    TORCH_CHECK(d <= 128);
    auto O = torch::empty({BH, N, d}, Q.options());
    size_t smem = (Br + 2 * Bc) * d * sizeof(half);
    flash_fwd<<<dim3((N + Br - 1) / Br, BH), Br, smem>>>((half*)Q.data_ptr<at::Half>(), (half*)K.data_ptr<at::Half>(),
                                                        (half*)V.data_ptr<at::Half>(), (half*)O.data_ptr<at::Half>(), N, d,
                                                        1.f / sqrtf(d), causal);
    return O;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("flash_attention", &flash_attention, "forward", py::arg("Q"), py::arg("K"), py::arg("V"), py::arg("causal") = false); }
