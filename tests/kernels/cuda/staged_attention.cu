// attention_per_row with K and V staged in shared memory by copies that complete at mbarriers. Q, K, V, O are (S, D).
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <math_constants.h>

namespace cg = cooperative_groups;
constexpr int D = 8, STAGES = 2, THREADS = 32;

struct Row {
    float q[D], out[D] = {}, m = -CUDART_INF_F, l = 0.0f;

    __device__ Row(const float* from) {
        for (int d = 0; d < D; ++d) q[d] = from[d];
    }
    __device__ void add(const float* kv, float scale) {  // a key, then its value
        float score = 0.0f;
        for (int d = 0; d < D; ++d) score += q[d] * kv[d];
        score *= scale;
        const float m_new = fmaxf(m, score), rescale = expf(m - m_new), p = expf(score - m_new);
        for (int d = 0; d < D; ++d) out[d] = out[d] * rescale + p * kv[D + d];
        l = l * rescale + p;
        m = m_new;
    }
};

__device__ const float* source(const float* k, const float* v, int key) {  // of thread t: element t of key and value
    return (threadIdx.x < D ? k : v) + key * D + threadIdx.x % D;
}

// cuda::pipeline of a block: its stages are mbarriers.
__global__ void by_pipeline(const float* q, const float* k, const float* v, float* o, int S, float scale) {
    __shared__ float stage[STAGES][2 * D];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state);
    Row row(q + threadIdx.x % S * D);
    for (int key = 0, fetched = 0; key < S; ++key) {
        for (; fetched < S && fetched < key + STAGES; ++fetched) {
            pipe.producer_acquire();
            if (threadIdx.x < 2 * D)
                cuda::memcpy_async(&stage[fetched % STAGES][threadIdx.x], source(k, v, fetched), sizeof(float), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        row.add(stage[key % STAGES], scale);
        pipe.consumer_release();
    }
    if (threadIdx.x < S)
        for (int d = 0; d < D; ++d) o[threadIdx.x * D + d] = row.out[d] / row.l;
}

// memcpy_async to a cuda::barrier, one key at a time.
__global__ void by_barrier(const float* q, const float* k, const float* v, float* o, int S, float scale) {
    __shared__ float stage[2 * D];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, THREADS);
    __syncthreads();
    Row row(q + threadIdx.x % S * D);
    for (int key = 0; key < S; ++key) {
        if (threadIdx.x < 2 * D) cuda::memcpy_async(&stage[threadIdx.x], source(k, v, key), sizeof(float), bar);
        bar.arrive_and_wait();
        row.add(stage, scale);
        __syncthreads();
    }
    if (threadIdx.x < S)
        for (int d = 0; d < D; ++d) o[threadIdx.x * D + d] = row.out[d] / row.l;
}
