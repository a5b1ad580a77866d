// Flash decoding: parts of the keys in parallel, each writes (m, l, acc); a second kernel merges them.
#include <torch/extension.h>

constexpr int SPLITS = 4;
constexpr int MAX_DIM = 128;

__global__ void partial_kernel(const float* q, const float* k, const float* v, float* part, float* stats, int lq, int lk,
                               int dim, float scale) {
    const int row = blockIdx.x, split = blockIdx.y, head = blockIdx.z, d = threadIdx.x;
    __shared__ float product[MAX_DIM];
    __shared__ float score;
    const int each = (lk + SPLITS - 1) / SPLITS;
    const int begin = split * each, end = min(lk, begin + each);
    const float mine = d < dim ? q[((size_t)head * lq + row) * dim + d] : 0.f;
    float m = -INFINITY, l = 0.f, acc = 0.f;
    for (int j = begin; j < end; j++) {
        product[d] = d < dim ? mine * k[((size_t)head * lk + j) * dim + d] : 0.f;
        __syncthreads();
        if (d < 32) {
            float s = product[d] + product[d + 32] + product[d + 64] + product[d + 96];
            for (int o = 16; o; o /= 2) s += __shfl_down_sync(0xffffffff, s, o);
            if (d == 0) score = s * scale;
        }
        __syncthreads();
        const float m_new = fmaxf(m, score), f = expf(m - m_new), p = expf(score - m_new);
        l = l * f + p;
        if (d < dim) acc = acc * f + p * v[((size_t)head * lk + j) * dim + d];
        m = m_new;
        __syncthreads();
    }
    const size_t at = ((size_t)head * lq + row) * SPLITS + split;
    if (d < dim) part[at * dim + d] = acc;
    if (d == 0) {
        stats[2 * at] = m;
        stats[2 * at + 1] = l;
    }
}

__global__ void merge_kernel(const float* part, const float* stats, float* o, int dim) {
    const size_t row = blockIdx.x;
    float top = -INFINITY;
    for (int s = 0; s < SPLITS; s++) top = fmaxf(top, stats[2 * (row * SPLITS + s)]);
    float sum = 0.f, acc = 0.f;
    for (int s = 0; s < SPLITS; s++) {
        const size_t at = row * SPLITS + s;
        const float w = stats[2 * at] == -INFINITY ? 0.f : expf(stats[2 * at] - top);
        sum += w * stats[2 * at + 1];
        if (w > 0.f && threadIdx.x < dim) acc += w * part[at * dim + threadIdx.x];
    }
    if (threadIdx.x < dim) o[row * dim + threadIdx.x] = acc / sum;
}

torch::Tensor decode(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const int batch = q.size(0), heads = q.size(1), lq = q.size(2), dim = q.size(3), lk = k.size(2);
    TORCH_CHECK(dim <= MAX_DIM);
    auto part = torch::empty({batch * heads * lq, SPLITS, dim}, q.options());
    auto stats = torch::empty({batch * heads * lq, SPLITS, 2}, q.options());
    auto o = torch::empty_like(q);
    partial_kernel<<<dim3(lq, SPLITS, batch * heads), MAX_DIM>>>(q.data_ptr<float>(), k.data_ptr<float>(),
                                                                 v.data_ptr<float>(), part.data_ptr<float>(),
                                                                 stats.data_ptr<float>(), lq, lk, dim, 1.f / sqrtf(dim));
    merge_kernel<<<batch * heads * lq, MAX_DIM>>>(part.data_ptr<float>(), stats.data_ptr<float>(), o.data_ptr<float>(), dim);
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("decode", &decode); }
