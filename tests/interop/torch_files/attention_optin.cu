// at::Half tensors as half pointers, HEAD_DIM by a switch, more than 48 KB of shared memory by opting in.
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <cuda_fp16.h>

#include <cmath>
#include <tuple>

#define BLOCK_M 32
#define BLOCK_N 64
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

template <int HEAD_DIM>
struct Tiles {
    static constexpr int STRIDE = HEAD_DIM + 2;
    float q[BLOCK_M][STRIDE];
    float k[BLOCK_N][STRIDE];
    float v[BLOCK_N][STRIDE];
};

template <int HEAD_DIM>
__global__ void attention_kernel(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                                 half* __restrict__ o, float* __restrict__ lse, int S, float scale) {
    extern __shared__ __align__(16) unsigned char raw[];
    Tiles<HEAD_DIM>& tiles = *reinterpret_cast<Tiles<HEAD_DIM>*>(raw);
    const size_t head = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * S * HEAD_DIM;
    const int first = blockIdx.x * BLOCK_M, row = first + threadIdx.x;
    for (int i = threadIdx.x; i < BLOCK_M * HEAD_DIM; i += BLOCK_M) {
        const int r = i / HEAD_DIM, d = i % HEAD_DIM;
        tiles.q[r][d] = first + r < S ? __half2float(q[head + size_t(first + r) * HEAD_DIM + d]) : 0.0f;
    }
    float u[HEAD_DIM] = {}, m = -INFINITY, l = 0.0f;
    for (int start = 0; start < S; start += BLOCK_N) {
        __syncthreads();
        for (int i = threadIdx.x; i < BLOCK_N * HEAD_DIM; i += BLOCK_M) {
            const int r = i / HEAD_DIM, d = i % HEAD_DIM;
            const bool inside = start + r < S;
            const size_t at = head + size_t(start + r) * HEAD_DIM + d;
            tiles.k[r][d] = inside ? __half2float(k[at]) : 0.0f;
            tiles.v[r][d] = inside ? __half2float(v[at]) : 0.0f;
        }
        __syncthreads();
        for (int n = 0; n < BLOCK_N && start + n < S; ++n) {
            float score = 0.0f;
            for (int d = 0; d < HEAD_DIM; ++d) score += tiles.q[threadIdx.x][d] * tiles.k[n][d];
            score *= scale;
            const float top = fmaxf(m, score), rescale = expf(m - top), p = expf(score - top);
            for (int d = 0; d < HEAD_DIM; ++d) u[d] = u[d] * rescale + p * tiles.v[n][d];
            l = l * rescale + p;
            m = top;
        }
    }
    if (row >= S) return;
    for (int d = 0; d < HEAD_DIM; ++d) o[head + size_t(row) * HEAD_DIM + d] = __float2half(u[d] / l);
    lse[(size_t(blockIdx.z) * gridDim.y + blockIdx.y) * S + row] = m + logf(l);
}

template <int HEAD_DIM>
void run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& o, at::Tensor& lse, float scale);

std::tuple<at::Tensor, at::Tensor> attention(at::Tensor q, at::Tensor k, at::Tensor v) {
    TORCH_CHECK(q.dim() == 4 && q.scalar_type() == at::kHalf, "q must be half [B, H, S, D]");
    TORCH_CHECK(k.sizes() == q.sizes(), "k");
    TORCH_CHECK(v.sizes() == q.sizes(), "v");
    const int64_t B = q.size(0), H = q.size(1), S = q.size(2);
    const int64_t D = q.size(-1);
    at::Tensor o = at::empty_like(q);
    at::Tensor lse = at::empty({B, H, S}, q.options().dtype(at::kFloat));
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    const half* q_ptr = reinterpret_cast<const half*>(q.data_ptr<at::Half>());
    const half* k_ptr = reinterpret_cast<const half*>(k.data_ptr<at::Half>());
    const half* v_ptr = reinterpret_cast<const half*>(v.data_ptr<at::Half>());
    half* o_ptr = (half*)o.data_ptr<at::Half>();
    const dim3 grid(CEIL_DIV(S, BLOCK_M), H, B);
    const int smem = (BLOCK_M + 2 * BLOCK_N) * (D + 2) * sizeof(float);
    switch (D) {
        case 64:
            cudaFuncSetAttribute(attention_kernel<64>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
            attention_kernel<64><<<grid, BLOCK_M, smem, at::cuda::getCurrentCUDAStream()>>>(
                q_ptr, k_ptr, v_ptr, o_ptr, lse.data_ptr<float>(), S, scale);
            break;
        case 96:
            cudaFuncSetAttribute(attention_kernel<96>, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
            attention_kernel<96><<<grid, BLOCK_M, smem, at::cuda::getCurrentCUDAStream()>>>(
                q_ptr, k_ptr, v_ptr, o_ptr, lse.data_ptr<float>(), S, scale);
            break;
        default:
            TORCH_CHECK(false, "D = ", D, " is not supported");
    }
    AT_CUDA_CHECK(cudaGetLastError());
    return std::make_tuple(o, lse);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &attention, "attention (CUDA)", py::arg("q"), py::arg("k"), py::arg("v"));
}
