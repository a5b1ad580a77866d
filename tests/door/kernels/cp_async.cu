// Keys and values are copied by cp.async while the previous tile is used: two buffers.
#include <torch/extension.h>
#include <cuda_pipeline.h>

#define ROWS 32
#define KEYS 16
#define D 64

__global__ void pipelined_attention(const float* q, const float* k, const float* v, float* o, int n, float scale) {
    __shared__ __align__(16) float k_buf[2][KEYS][D];
    __shared__ __align__(16) float v_buf[2][KEYS][D];
    const size_t base = (size_t)blockIdx.y * n * D;
    const int row = blockIdx.x * ROWS + threadIdx.x;
    float q_reg[D], acc[D];
    for (int d = 0; d < D; d++) {
        q_reg[d] = row < n ? q[base + (size_t)row * D + d] : 0.f;
        acc[d] = 0.f;
    }
    auto fetch = [&](int tile, int stage) {
        for (int x = threadIdx.x; x < KEYS * D / 4; x += ROWS) {
            const int j = x / (D / 4), c = 4 * (x % (D / 4));
            const int key = min(tile * KEYS + j, n - 1);
            __pipeline_memcpy_async(&k_buf[stage][j][c], k + base + (size_t)key * D + c, 16);
            __pipeline_memcpy_async(&v_buf[stage][j][c], v + base + (size_t)key * D + c, 16);
        }
        __pipeline_commit();
    };
    const int tiles = (n + KEYS - 1) / KEYS;
    float m = -INFINITY, l = 0.f;
    fetch(0, 0);
    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            fetch(tile + 1, (tile + 1) % 2);
            __pipeline_wait_prior(1);
        } else {
            __pipeline_wait_prior(0);
        }
        __syncthreads();
        const int stage = tile % 2;
        for (int j = 0; j < KEYS && tile * KEYS + j < n; j++) {
            float s = 0.f;
            for (int d = 0; d < D; d++) s += q_reg[d] * k_buf[stage][j][d];
            s *= scale;
            const float m_new = fmaxf(m, s), f = __expf(m - m_new), p = __expf(s - m_new);
            l = l * f + p;
            for (int d = 0; d < D; d++) acc[d] = acc[d] * f + p * v_buf[stage][j][d];
            m = m_new;
        }
        __syncthreads();
    }
    if (row < n)
        for (int d = 0; d < D; d++) o[base + (size_t)row * D + d] = acc[d] / l;
}

torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    TORCH_CHECK(q.size(3) == D);
    auto o = torch::empty_like(q);
    const int n = q.size(2);
    pipelined_attention<<<dim3((n + ROWS - 1) / ROWS, q.size(0) * q.size(1)), ROWS>>>(
        q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), n, 1.f / sqrtf((float)D));
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
