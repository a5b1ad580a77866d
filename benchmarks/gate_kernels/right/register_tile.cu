// A register tile of 4 x 4 scores per thread: 64 threads own 32 queries x 32 keys, stream the head dimension in
// slices of 8 through shared memory, and accumulate slices of 4 x 1 columns of U.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=65 SKV=77 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: require   D <= 256
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    register_tile<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale) grid(cdiv(SQ, 32), HQ, B) block(64)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

using T = ELEMENT;

// The keys that a query sees are always a prefix: 0 <= key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

constexpr int TILE = 32, SLICE = 8, R = 4, THREADS = 64;

// slice[r][c] = head[first + r][column + c], zero outside.
template <int D>
__device__ void load(float (*slice)[SLICE + 1], const T* head, int first, int rows, int column) {
    for (int i = threadIdx.x; i < TILE * SLICE; i += THREADS) {
        const int r = i / SLICE, c = i % SLICE;
        slice[r][c] = first + r < rows && column + c < D ? float(head[size_t(first + r) * D + column + c]) : 0.0f;
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
register_tile(const T* q, const T* k, const T* v, T* o, float* lse, int HKV, int SQ, int SKV, float scale) {
    constexpr int SLICES = (D + SLICE - 1) / SLICE;
    __shared__ float sA[TILE][SLICE + 1], sB[TILE][SLICE + 1], sP[TILE][TILE + 1], sU[TILE][SLICES * SLICE];
    const int x = threadIdx.x % 8, y = threadIdx.x / 8, first_query = blockIdx.x * TILE;  // rows 4y + i, keys 4x + j
    const int h = blockIdx.y, b = blockIdx.z, HQ = gridDim.y;
    const size_t q_head = size_t(b) * HQ + h, kv_head = size_t(b) * HKV + h / (HQ / HKV);
    float m[R], l[R] = {}, rescale[R];
    for (int i = 0; i < R; ++i) {
        m[i] = -CUDART_INF_F;
        for (int c = x; c < SLICES * SLICE; c += SLICE) sU[R * y + i][c] = 0.0f;  // no other thread touches these
    }
    const int end = visible_keys(min(first_query + TILE, SQ) - 1, SQ, SKV);
    for (int first = 0; first < end; first += TILE) {
        float s[R][R] = {};
#pragma unroll 1
        for (int slice = 0; slice < SLICES; ++slice) {
            __syncthreads();
            load<D>(sA, q + q_head * SQ * D, first_query, SQ, slice * SLICE);
            load<D>(sB, k + kv_head * SKV * D, first, SKV, slice * SLICE);
            __syncthreads();
            for (int c = 0; c < SLICE; ++c)
                for (int i = 0; i < R; ++i)
                    for (int j = 0; j < R; ++j) s[i][j] += sA[R * y + i][c] * sB[R * x + j][c];
        }
        for (int i = 0; i < R; ++i) {  // the 8 lanes of a row are neighbours in a warp
            const int visible = visible_keys(min(first_query + R * y + i, SQ - 1), SQ, SKV);
            float top = -CUDART_INF_F, sum = 0.0f;
            for (int j = 0; j < R; ++j) {
                s[i][j] = first + R * x + j < visible ? s[i][j] * scale : -CUDART_INF_F;
                top = fmaxf(top, s[i][j]);
            }
            for (int w = 4; w > 0; w /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, w));
            top = fmaxf(top, m[i]);
            const float shift = top == -CUDART_INF_F ? 0.0f : top;
            rescale[i] = expf(m[i] - shift);
            for (int j = 0; j < R; ++j) sum += sP[R * y + i][R * x + j] = expf(s[i][j] - shift);
            for (int w = 4; w > 0; w /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, w);
            l[i] = l[i] * rescale[i] + sum;
            m[i] = top;
        }
#pragma unroll 1
        for (int slice = 0; slice < SLICES; ++slice) {
            __syncthreads();  // sP is written, the slice before was read
            load<D>(sB, v + kv_head * SKV * D, first, SKV, slice * SLICE);
            __syncthreads();
            float u[R];
            for (int i = 0; i < R; ++i) u[i] = sU[R * y + i][slice * SLICE + x] * rescale[i];
#pragma unroll 4
            for (int key = 0; key < TILE; ++key)
                for (int i = 0; i < R; ++i) u[i] += sP[R * y + i][key] * sB[key][x];
            for (int i = 0; i < R; ++i) sU[R * y + i][slice * SLICE + x] = u[i];
        }
    }
    for (int i = 0; i < R; ++i) {
        const int query = first_query + R * y + i;
        if (query >= SQ) break;
        const size_t row = q_head * SQ + query;
        for (int c = x; c < D; c += SLICE) o[row * D + c] = T(l[i] > 0.0f ? sU[R * y + i][c] / l[i] : 0.0f);
        if (x == 0) lse[row] = l[i] > 0.0f ? m[i] + logf(l[i]) : -CUDART_INF_F;
    }
}
