// Any floating type by AT_DISPATCH; a block per query, sums in float.
#include <torch/extension.h>

template <typename scalar_t>
__global__ void sdpa_kernel(const scalar_t* __restrict__ query, const scalar_t* __restrict__ key,
                            const scalar_t* __restrict__ value, scalar_t* __restrict__ out, int heads, int kv_heads,
                            int q_len, int kv_len, int dim, float scale) {
    extern __shared__ float scores[];
    __shared__ float reduced[4];
    const int i = blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
    const int kv_head = head / (heads / kv_heads);
    const scalar_t* q = query + (((size_t)batch * heads + head) * q_len + i) * dim;
    const scalar_t* k = key + ((size_t)batch * kv_heads + kv_head) * kv_len * dim;
    const scalar_t* v = value + ((size_t)batch * kv_heads + kv_head) * kv_len * dim;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float local_max = -INFINITY;
    for (int j = threadIdx.x; j < kv_len; j += blockDim.x) {
        float dot = 0.f;
        for (int d = 0; d < dim; ++d) dot += static_cast<float>(q[d]) * static_cast<float>(k[(size_t)j * dim + d]);
        scores[j] = dot * scale;
        local_max = fmaxf(local_max, scores[j]);
    }
    for (int offset = 16; offset; offset >>= 1) local_max = fmaxf(local_max, __shfl_xor_sync(~0u, local_max, offset));
    if (lane == 0) reduced[warp] = local_max;
    __syncthreads();
    const float top = fmaxf(fmaxf(reduced[0], reduced[1]), fmaxf(reduced[2], reduced[3]));
    float local_sum = 0.f;
    for (int j = threadIdx.x; j < kv_len; j += blockDim.x) {
        scores[j] = expf(scores[j] - top);
        local_sum += scores[j];
    }
    for (int offset = 16; offset; offset >>= 1) local_sum += __shfl_xor_sync(~0u, local_sum, offset);
    __syncthreads();
    if (lane == 0) reduced[warp] = local_sum;
    __syncthreads();
    const float sum = reduced[0] + reduced[1] + reduced[2] + reduced[3];
    for (int d = threadIdx.x; d < dim; d += blockDim.x) {
        float acc = 0.f;
        for (int j = 0; j < kv_len; ++j) acc += scores[j] * static_cast<float>(v[(size_t)j * dim + d]);
        out[(((size_t)batch * heads + head) * q_len + i) * dim + d] = static_cast<scalar_t>(acc / sum);
    }
}

torch::Tensor sdpa(torch::Tensor query, torch::Tensor key, torch::Tensor value) {
    const auto batch = query.size(0), heads = query.size(1), q_len = query.size(2), dim = query.size(3);
    const auto kv_heads = key.size(1), kv_len = key.size(2);
    TORCH_CHECK(heads % kv_heads == 0);
    auto out = torch::empty_like(query);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, query.scalar_type(), "sdpa", [&] {
        sdpa_kernel<scalar_t><<<dim3(q_len, heads, batch), 128, kv_len * sizeof(float)>>>(
            query.data_ptr<scalar_t>(), key.data_ptr<scalar_t>(), value.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(),
            heads, kv_heads, q_len, kv_len, dim, 1.0 / sqrt((double)dim));
    });
    return out;
}

TORCH_LIBRARY(my_ops, m) { m.def("sdpa", &sdpa); }
