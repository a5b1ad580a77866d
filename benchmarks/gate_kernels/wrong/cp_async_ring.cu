// Keys pass through a ring of five tiles of 32 in shared memory, filled by cp.async; V is read from global memory. Rows whose
// bytes are no multiple of 16 are copied element by element. Four warps, a query each.
//
// wrong 1 late_wrap: the consumer wraps once only, so the eleventh tile (more than 320 keys) is read past the end of the ring (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=340 D=16 f16 none unit_normal)
// wrong 2 early_refill: once the ring wraps (more than 160 keys), a slot is filled again before the other warps have read it (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=300 D=16 f16 none unit_normal)
// wrong 3 narrow_rows: rows whose bytes are no multiple of 16 are copied only up to the last whole 16 bytes (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=20 D=20 f16 none unit_normal)
// wrong 4 drained: the last tiles of a ring that has wrapped are waited for as if one more copy were under way (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=300 D=16 f16 none unit_normal)
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  cp_async_ring<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, 4), HQ, B) block(128) shared(5 * 32 * D * 4) opt_in_shared

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int STAGES = 5, TILE = 32, THREADS = 128;

// Starts the copy of a tile's rows: one group of copies, empty where there is no such tile.
template <int D>
__device__ void fill(ELEMENT* slot, const ELEMENT* k, int tile, int SKV) {
    const int first = tile * TILE, elements = max(0, min(TILE, SKV - first)) * D;
    constexpr int VECTOR = 16 / sizeof(ELEMENT);
    if (D % VECTOR == 0) {
        for (int i = threadIdx.x * VECTOR; i < elements; i += THREADS * VECTOR)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(slot + i))),
                         "l"(k + size_t(first) * D + i)
                         : "memory");
    } else {
        for (int i = threadIdx.x; i < elements; i += THREADS)
            if (WRONG != 3 || i % D < D / VECTOR * VECTOR) slot[i] = k[size_t(first) * D + i];
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int D>
__global__ void cp_async_ring(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV,
                              int SQ, int SKV, float scale) {
    extern __shared__ __align__(16) char bytes[];
    ELEMENT* const ring = reinterpret_cast<ELEMENT*>(bytes);
    constexpr int COLUMNS = (D + 31) / 32;
    const int lane = threadIdx.x % 32, query = blockIdx.x * 4 + threadIdx.x / 32, h = blockIdx.y, b = blockIdx.z;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + min(query, SQ - 1);
    const size_t kv = (size_t(b) * HKV + h / (gridDim.y / HKV)) * SKV * D;
    int visible = SKV;
    if (CAUSAL) visible = max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));

    float u[COLUMNS] = {}, m = -CUDART_INF_F, l = 0.0f;
    const int tiles = (SKV + TILE - 1) / TILE;
    for (int tile = 0; tile < STAGES - (WRONG != 2); ++tile) fill<D>(ring + tile * TILE * D, k + kv, tile, SKV);
    for (int tile = 0; tile < tiles; ++tile) {
        if (WRONG == 4 && tile >= STAGES && tile + 1 == tiles)
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
        else
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // the tile has come for all, and all have left the slot that is filled next
        if (WRONG != 2) fill<D>(ring + (tile + STAGES - 1) % STAGES * TILE * D, k + kv, tile + STAGES - 1, SKV);
        const int slot = WRONG == 1 && tile >= STAGES ? tile - STAGES : tile % STAGES, key = tile * TILE + lane;
        const ELEMENT* const k_row = ring + (slot * TILE + lane) * D;
        float s = -CUDART_INF_F;
        if (key < visible) {
            s = 0.0f;
            for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k_row[d]);
            s *= scale;
        }
        float m_new = fmaxf(m, s);
        for (int offset = 16; offset > 0; offset /= 2) m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, offset));
        const float base = m_new == -CUDART_INF_F ? 0.0f : m_new, rescale = expf(m - base), p = expf(s - base);
        float sum = p;
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        l = l * rescale + sum;
        m = m_new;
        for (int i = 0; i < COLUMNS; ++i) u[i] *= rescale;
        for (int j = 0; j < min(TILE, visible - tile * TILE); ++j) {
            const float weight = __shfl_sync(~0u, p, j);
            for (int i = 0; i < COLUMNS; ++i)
                if (i * 32 + lane < D) u[i] += weight * float(v[kv + size_t(tile * TILE + j) * D + i * 32 + lane]);
        }
        if (WRONG == 2) fill<D>(ring + tile % STAGES * TILE * D, k + kv, tile + STAGES, SKV);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    if (query >= SQ) return;
    for (int i = 0; i < COLUMNS; ++i)
        if (i * 32 + lane < D) o[row * D + i * 32 + lane] = ELEMENT(l == 0.0f ? 0.0f : u[i] / l);
    if (lane == 0) lse[row] = m + logf(l);
}
