// A CTA has 16 queries and walks the keys in tiles of 64, which it copies to shared memory; eight threads share a query.
// Blocks of queries that see no key at all write zeros and leave.
//
// wrong 1 partly_empty: in a block where some queries see no key and others do (SQ - SKV no multiple of 16), the blind ones are NaN (seen at B=1 HQ=1 HKV=1 SQ=30 SKV=20 D=32 f16 bottom_right unit_normal)
// wrong 2 rest_of_one: the last tile is left out if it has one key, SKV % 64 = 1 (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=65 D=32 f16 none unit_normal)
// wrong 3 group_of_3: heads are mapped by a shift, which is wrong for groups that are no power of two (seen at B=1 HQ=6 HKV=2 SQ=4 SKV=20 D=32 f16 none unit_normal)
// wrong 4 fourth_tile: from the fourth tile on (more than 192 keys) the rest of a tile that is not full is not masked (seen at B=1 HQ=1 HKV=1 SQ=4 SKV=200 D=32 f16 none unit_normal)
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
// weft: launch  tiled_shared<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, 16), HQ, B) block(128) shared(64 * D * 4) opt_in_shared

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr int ROWS = 16, TILE = 64, PARTS = 8;  // PARTS threads share a row: keys part, part + 8 … and columns alike

__device__ int visible_keys(int query, int SQ, int SKV) {
    return CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1)) : SKV;
}

template <int D>
__global__ void tiled_shared(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int HKV,
                             int SQ, int SKV, float scale) {
    constexpr int COLUMNS = (D + PARTS - 1) / PARTS;
    extern __shared__ char bytes[];
    ELEMENT* const tile = reinterpret_cast<ELEMENT*>(bytes);  // of K, then of V
    __shared__ float weights[ROWS][TILE];
    const int thread = threadIdx.x, r = thread / PARTS, part = thread % PARTS, h = blockIdx.y, b = blockIdx.z;
    const int query = blockIdx.x * ROWS + r, group = gridDim.y / HKV;
    const size_t row = (size_t(b) * gridDim.y + h) * SQ + min(query, SQ - 1);
    const int kv_head = WRONG == 3 ? h >> (31 - __clz(group)) : h / group;
    const size_t kv = (size_t(b) * HKV + kv_head) * SKV * D;
    const int visible = visible_keys(query, SQ, SKV);
    const int block_sees = visible_keys(min(int(blockIdx.x + 1) * ROWS, SQ) - 1, SQ, SKV);
    if (block_sees == 0) {
        for (int d = part; d < D && query < SQ; d += PARTS) o[row * D + d] = ELEMENT(0.0f);
        if (part == 0 && query < SQ) lse[row] = -CUDART_INF_F;
        return;
    }
    float u[COLUMNS] = {}, m = -CUDART_INF_F, l = 0.0f;
    const int tiles = WRONG == 2 ? (SKV + TILE - 2) / TILE : (SKV + TILE - 1) / TILE;
    for (int t = 0; t < tiles && t * TILE < block_sees; ++t) {
        const int first = t * TILE, inside = min(TILE, SKV - first) * D;
        for (int i = thread; i < TILE * D; i += 128) tile[i] = i < inside ? k[kv + size_t(first) * D + i] : ELEMENT(0.0f);
        __syncthreads();
        float s[TILE / PARTS], m_new = m;
        for (int i = 0; i < TILE / PARTS; ++i) {
            const int key = i * PARTS + part;
            s[i] = 0.0f;
            for (int d = 0; d < D; ++d) s[i] += float(q[row * D + d]) * float(tile[key * D + d]);
            const bool seen = first + key < visible || (WRONG == 4 && CAUSAL == 0 && t >= 3);
            s[i] = seen ? s[i] * scale : -CUDART_INF_F;
            m_new = fmaxf(m_new, s[i]);
        }
        for (int offset = 1; offset < PARTS; offset *= 2) m_new = fmaxf(m_new, __shfl_xor_sync(~0u, m_new, offset));
        const float base = m_new == -CUDART_INF_F && WRONG != 1 ? 0.0f : m_new;
        float sum = 0.0f;
        for (int i = 0; i < TILE / PARTS; ++i) sum += weights[r][i * PARTS + part] = expf(s[i] - base);
        for (int offset = 1; offset < PARTS; offset *= 2) sum += __shfl_xor_sync(~0u, sum, offset);
        const float rescale = expf(m - base);
        l = l * rescale + sum;
        m = m_new;
        __syncthreads();
        for (int i = thread; i < TILE * D; i += 128) tile[i] = i < inside ? v[kv + size_t(first) * D + i] : ELEMENT(0.0f);
        __syncthreads();
        for (int i = 0; i < COLUMNS; ++i) {
            const int d = i * PARTS + part;
            float products = 0.0f;
            for (int key = 0; key < TILE && d < D; ++key) products += weights[r][key] * float(tile[key * D + d]);
            u[i] = u[i] * rescale + products;
        }
        __syncthreads();
    }
    if (query >= SQ) return;
    const float inverse = l == 0.0f ? 0.0f : 1.0f / l;
    for (int i = 0; i < COLUMNS; ++i)
        if (i * PARTS + part < D) o[row * D + i * PARTS + part] = ELEMENT(u[i] * inverse);
    if (part == 0) lse[row] = m + logf(l);
}
