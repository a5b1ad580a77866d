// Tensor cores by WMMA: one warp owns 16 queries; scores and weights pass through shared memory.
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

#define HEAD_DIM 64
#define TILE 16

__global__ void wmma_attention(const half* q, const half* k, const half* v, half* o, int n, float scale) {
    __shared__ half sQ[TILE * HEAD_DIM], sK[TILE * HEAD_DIM], sV[TILE * HEAD_DIM], sP[TILE * TILE];
    __shared__ float sS[TILE * TILE], sO[TILE * HEAD_DIM], sM[TILE], sL[TILE], sA[TILE];
    const int lane = threadIdx.x;
    const int first = blockIdx.x * TILE;
    const size_t base = (size_t)blockIdx.y * n * HEAD_DIM;
    for (int x = lane; x < TILE * HEAD_DIM; x += 32) {
        const int r = first + x / HEAD_DIM;
        sQ[x] = r < n ? q[base + (size_t)r * HEAD_DIM + x % HEAD_DIM] : __float2half(0.f);
        sO[x] = 0.f;
    }
    if (lane < TILE) {
        sM[lane] = -INFINITY;
        sL[lane] = 0.f;
    }
    __syncwarp();
    for (int start = 0; start < n; start += TILE) {
        for (int x = lane; x < TILE * HEAD_DIM; x += 32) {
            const int r = start + x / HEAD_DIM;
            sK[x] = r < n ? k[base + (size_t)r * HEAD_DIM + x % HEAD_DIM] : __float2half(0.f);
            sV[x] = r < n ? v[base + (size_t)r * HEAD_DIM + x % HEAD_DIM] : __float2half(0.f);
        }
        __syncwarp();
        wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> s_frag;
        wmma::fill_fragment(s_frag, 0.f);
        for (int d = 0; d < HEAD_DIM; d += TILE) {
            wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> q_frag;
            wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, wmma::col_major> k_frag;
            wmma::load_matrix_sync(q_frag, sQ + d, HEAD_DIM);
            wmma::load_matrix_sync(k_frag, sK + d, HEAD_DIM);
            wmma::mma_sync(s_frag, q_frag, k_frag, s_frag);
        }
        wmma::store_matrix_sync(sS, s_frag, TILE, wmma::mem_row_major);
        __syncwarp();
        if (lane < TILE) {
            const float old_max = sM[lane];
            float new_max = old_max;
            for (int j = 0; j < TILE; j++)
                if (start + j < n) new_max = fmaxf(new_max, sS[lane * TILE + j] * scale);
            float sum = 0.f;
            for (int j = 0; j < TILE; j++) {
                const float p = start + j < n ? __expf(sS[lane * TILE + j] * scale - new_max) : 0.f;
                sP[lane * TILE + j] = __float2half(p);
                sum += p;
            }
            const float alpha = __expf(old_max - new_max);
            sL[lane] = sL[lane] * alpha + sum;
            sM[lane] = new_max;
            sA[lane] = alpha;
        }
        __syncwarp();
        for (int x = lane; x < TILE * HEAD_DIM; x += 32) sO[x] *= sA[x / HEAD_DIM];
        __syncwarp();
        for (int d = 0; d < HEAD_DIM; d += TILE) {
            wmma::fragment<wmma::matrix_a, TILE, TILE, TILE, half, wmma::row_major> p_frag;
            wmma::fragment<wmma::matrix_b, TILE, TILE, TILE, half, wmma::row_major> v_frag;
            wmma::fragment<wmma::accumulator, TILE, TILE, TILE, float> o_frag;
            wmma::load_matrix_sync(o_frag, sO + d, HEAD_DIM, wmma::mem_row_major);
            wmma::load_matrix_sync(p_frag, sP, TILE);
            wmma::load_matrix_sync(v_frag, sV + d, HEAD_DIM);
            wmma::mma_sync(o_frag, p_frag, v_frag, o_frag);
            wmma::store_matrix_sync(sO + d, o_frag, HEAD_DIM, wmma::mem_row_major);
        }
        __syncwarp();
    }
    for (int x = lane; x < TILE * HEAD_DIM; x += 32) {
        const int r = first + x / HEAD_DIM;
        if (r < n) o[base + (size_t)r * HEAD_DIM + x % HEAD_DIM] = __float2half(sO[x] / sL[x / HEAD_DIM]);
    }
}

torch::Tensor forward(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    const int b = q.size(0), h = q.size(1), n = q.size(2), d = q.size(3);
    TORCH_CHECK(d == HEAD_DIM, "head dimension must be 64");
    auto o = torch::empty_like(q);
    dim3 grid((n + TILE - 1) / TILE, b * h);
    wmma_attention<<<grid, 32>>>((const half*)q.data_ptr<at::Half>(), (const half*)k.data_ptr<at::Half>(),
                                 (const half*)v.data_ptr<at::Half>(), (half*)o.data_ptr<at::Half>(), n, 1.0f / sqrtf(d));
    return o;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
