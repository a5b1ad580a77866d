// fp16, one warp per query; the head dimension is a template argument that a switch chooses.
#include <torch/extension.h>
#include <cuda_fp16.h>

template <int HEAD_DIM>
__global__ void attn_fwd(const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
                         half* __restrict__ o, int seq_q, int seq_k, float scale) {
    constexpr int PER_LANE = HEAD_DIM / 32;
    const int lane = threadIdx.x % 32;
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= seq_q) return;
    const half* q_row = q + ((size_t)blockIdx.y * seq_q + row) * HEAD_DIM;
    const half* k_head = k + (size_t)blockIdx.y * seq_k * HEAD_DIM;
    const half* v_head = v + (size_t)blockIdx.y * seq_k * HEAD_DIM;
    float q_reg[PER_LANE], acc[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) {
        q_reg[i] = __half2float(q_row[lane + 32 * i]) * scale;
        acc[i] = 0.f;
    }
    float row_max = -INFINITY, row_sum = 0.f;
    for (int key = 0; key < seq_k; ++key) {
        float dot = 0.f;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) dot += q_reg[i] * __half2float(k_head[(size_t)key * HEAD_DIM + lane + 32 * i]);
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) dot += __shfl_xor_sync(0xffffffff, dot, offset);
        const float new_max = fmaxf(row_max, dot);
        const float rescale = __expf(row_max - new_max);
        const float weight = __expf(dot - new_max);
        row_sum = row_sum * rescale + weight;
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i)
            acc[i] = acc[i] * rescale + weight * __half2float(v_head[(size_t)key * HEAD_DIM + lane + 32 * i]);
        row_max = new_max;
    }
    half* o_row = o + ((size_t)blockIdx.y * seq_q + row) * HEAD_DIM;
#pragma unroll
    for (int i = 0; i < PER_LANE; ++i) o_row[lane + 32 * i] = __float2half(acc[i] / row_sum);
}

template <int HEAD_DIM>
void launch(torch::Tensor q, torch::Tensor k, torch::Tensor v, torch::Tensor o, float scale) {
    const int batch = q.size(0), heads = q.size(1), seq_q = q.size(2), seq_k = k.size(2);
    const int warps = 4;
    dim3 grid((seq_q + warps - 1) / warps, batch * heads);
    attn_fwd<HEAD_DIM><<<grid, 32 * warps>>>(reinterpret_cast<half*>(q.data_ptr<at::Half>()),
                                             reinterpret_cast<half*>(k.data_ptr<at::Half>()),
                                             reinterpret_cast<half*>(v.data_ptr<at::Half>()),
                                             reinterpret_cast<half*>(o.data_ptr<at::Half>()), seq_q, seq_k, scale);
}

torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    TORCH_CHECK(q.dtype() == torch::kHalf, "fp16 only");
    TORCH_CHECK(q.size(1) == k.size(1), "no grouped heads");
    auto o = torch::empty_like(q);
    const int head_dim = q.size(3);
    const float scale = 1.f / sqrtf(head_dim);
    switch (head_dim) {
        case 32:
            launch<32>(q, k, v, o, scale);
            break;
        case 64:
            launch<64>(q, k, v, o, scale);
            break;
        case 128:
            launch<128>(q, k, v, o, scale);
            break;
        default:
            TORCH_CHECK(false, "unsupported head dimension ", head_dim);
    }
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
