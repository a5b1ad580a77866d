// A ring of two tiles: two producer warps copy with cp.async and cp.async.mbarrier.arrive.noinc, whose arrivals are
// part of the expected count, three consumer warps wait by parity and hand tiles back.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    CAUSAL = 0
// weft: require   D % 8 == 0 : copies of 16 bytes
// weft: require   D <= 256
// weft: in        q    : bf16[B, HQ, SQ, D] = normal
// weft: in        k, v : bf16[B, HKV, SKV, D] = normal
// weft: out       o    : bf16[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    ring<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 3), HQ, B) block(160)
#include <cuda_bf16.h>
#include <math_constants.h>

using T = __nv_bfloat16;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

template <int D, int PER_LANE>
__device__ __forceinline__ void step(const float (&ql)[PER_LANE], float (&u)[PER_LANE], float& m, float& l,
                                     const T* k_row, const T* v_row, float scale) {
    const int lane = threadIdx.x % 32;
    float s = 0.0f;
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) s += ql[i] * float(k_row[i * 32 + lane]);
    s = warp_sum(s) * scale;
    const float m_new = fmaxf(m, s), rescale = expf(m - m_new), p = expf(s - m_new);
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) u[i] = u[i] * rescale + p * float(v_row[i * 32 + lane]);
    l = l * rescale + p;
    m = m_new;
}

__device__ unsigned smem(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }
__device__ void init(unsigned long long* bar, int n) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(smem(bar)), "r"(n) : "memory");
}
__device__ void arrive(unsigned long long* bar) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(smem(bar)) : "memory");
}
__device__ void wait(unsigned long long* bar, unsigned parity) {
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(smem(bar)), "r"(parity) : "memory");
}
__device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem(to)), "l"(from) : "memory");
}

constexpr int TILE = 8, STAGES = 2, CONSUMERS = 3, PRODUCERS = 2, THREADS = 32 * (CONSUMERS + PRODUCERS);

template <int D>
__global__ void __launch_bounds__(THREADS)
ring(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int PER_LANE = (D + 31) / 32, CHUNKS = D / 8;  // chunks of 16 bytes
    __shared__ alignas(16) T sK[STAGES][TILE][D], sV[STAGES][TILE][D];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_query = blockIdx.x * CONSUMERS;
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    const int most = visible_keys(min(first_query + CONSUMERS, SQ) - 1, SQ, SKV), tiles = (most + TILE - 1) / TILE;
    if (threadIdx.x == 0)
        for (int s = 0; s < STAGES; ++s) init(&full[s], 32 * PRODUCERS), init(&empty[s], CONSUMERS);
    __syncthreads();

    if (warp >= CONSUMERS) {
        for (int tile = 0; tile < tiles; ++tile) {
            const int stage = tile % STAGES, lap = tile / STAGES, keys = min(TILE, most - tile * TILE);
            if (lap > 0) wait(&empty[stage], (lap - 1) & 1);
            const size_t at = (kv_head * SKV + tile * TILE) * D;
            for (int i = threadIdx.x - 32 * CONSUMERS; i < keys * CHUNKS; i += 32 * PRODUCERS) {
                copy16(&sK[stage][i / CHUNKS][i % CHUNKS * 8], k + at + i * 8);
                copy16(&sV[stage][i / CHUNKS][i % CHUNKS * 8], v + at + i * 8);
            }
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(smem(&full[stage])) : "memory");
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        return;
    }
    const int query = first_query + warp, mine = query < SQ ? visible_keys(query, SQ, SKV) : 0;
    const size_t row = q_head * SQ + min(query, SQ - 1);
    float ql[PER_LANE], u[PER_LANE] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int i = 0; i < PER_LANE; ++i) ql[i] = i * 32 + lane < D ? float(q[row * D + i * 32 + lane]) : 0.0f;
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % STAGES;
        wait(&full[stage], (tile / STAGES) & 1);
        for (int j = 0; j < min(TILE, mine - tile * TILE); ++j)
            step<D>(ql, u, m, l, sK[stage][j], sV[stage][j], scale);
        __syncwarp();
        if (lane == 0) arrive(&empty[stage]);
    }
    if (query >= SQ) return;
    for (int i = 0; i < PER_LANE; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = T(l > 0.0f ? u[i] / l : 0.0f);
    if (lane == 0) lse[row] = l > 0.0f ? m + logf(l) : -CUDART_INF_F;
}
