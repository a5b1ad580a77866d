// Decode over a paged cache of E4M3 codes: `paged_decode` with a quarter of fp32's traffic, half of fp16's.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// Idea      A code means number · scale of its key head. Both scales leave the loop over keys:
//               Q Kᵀ · scale = (Q · numbers of K) · (scale · k_scale),   O = (P · numbers of V) · v_scale
//           so the loop multiplies by no scale, and the second kernel applies v_scale once. A lane reads up to four
//           neighbouring codes as one word and converts two at a time (one instruction from sm_89 on).
// History   The 8-bit cache of vLLM, FlashInfer and TensorRT-LLM, where Q and O stay 16-bit numbers. Slots behind the last
//           key of a sequence hold any byte, NaN too: they are never read, as 0 · NaN would stay in U.
// Levers    SPLITS; WARPS: queries per CTA.
// Supports  codes u8 of E4M3; k_scale and v_scale f32 per key head, the same for all sequences, which may share pages;
//           ELEMENT, the type of Q and O: float, half, __nv_bfloat16 (arithmetic is fp32, O is rounded once);
//           any D, SQ ≥ 1, sequences of any length from 0; any PAGE ≥ 1; HQ a multiple of HKV (grouped queries);
//           CAUSAL 0 none, 2 bottom_right (query i sees keys ≤ i + length - SQ).
//           A query that sees no key gets O = 0 and LSE = -inf.
//           Generated codes are the positive ones, 0 … 126: the full range contains NaN.
//
// weft: sizes     B=2 HQ=4 HKV=2 SQ=1 D=64 PAGES=9 ENTRIES=4
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    PAGE = 16
// weft: define    SPLITS = 4
// weft: define    WARPS = 4
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k_cache_code, v_cache_code : u8[PAGES, PAGE, HKV, D] = uniform(0, 127)
// weft: in        block_table : i32[B, ENTRIES] = uniform(0, PAGES)
// weft: in        seq_lens : i32[B] = uniform(49, 65)
// weft: in        k_scale, v_scale : f32[HKV] = uniform(0.005, 0.01)
// weft: workspace part_u : f32[B, HQ, SPLITS, SQ, D]
// weft: workspace part_m, part_l : f32[B, HQ, SPLITS, SQ]
// weft: out       o    : ELEMENT[B, HQ, SQ, D]
// weft: out       lse  : f32[B, HQ, SQ]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    paged_fp8_partial<{D}>(q, k_cache_code, v_cache_code, block_table, seq_lens, k_scale,
// weft:                              part_u, part_m, part_l, HKV, SQ, ENTRIES, scale)
// weft:           grid(cdiv(SQ, WARPS), HQ, B * SPLITS) block(32 * WARPS)
// weft: launch    paged_fp8_merge<{D}>(part_u, part_m, part_l, v_scale, o, lse, HKV, SQ)
// weft:           grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
static_assert(SPLITS >= 1 && PAGE >= 1, "there is at least one part, and a page has a key");
static_assert(CAUSAL == 0 || CAUSAL == 2, "CAUSAL is 0 (none) or 2 (bottom right)");

// The row of part_u, part_m and part_l at [b, h, split, query]. Both kernels use this function, so they agree.
__device__ __forceinline__ size_t part_row(int b, int h, int split, int query, int SQ) {
    return ((static_cast<size_t>(b) * gridDim.y + h) * SPLITS + split) * SQ + query;
}

// How many neighbouring columns a lane reads at once: as many as leave no lane without a column.
template <int D>
constexpr int COLUMNS = D % 4 == 0 && D >= 128 ? 4 : D % 2 == 0 && D >= 64 ? 2 : 1;

// The numbers of N neighbouring codes, whose address is a multiple of N. 0x7F and 0xFF are NaN.
template <int N>
__device__ __forceinline__ void read_numbers(const unsigned char* __restrict__ codes, float (&number)[N]) {
    unsigned word;
    if constexpr (N == 4) word = *reinterpret_cast<const unsigned*>(codes);
    else if constexpr (N == 2) word = *reinterpret_cast<const unsigned short*>(codes);
    else word = *codes;
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        const auto pair = static_cast<__nv_fp8x2_storage_t>(word >> 8 * j);
        const half2 two = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
        number[j] = __low2float(two);
        if (j + 1 < N) number[j + 1] = __high2float(two);
    }
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
paged_fp8_partial(const ELEMENT* __restrict__ q, const unsigned char* __restrict__ k_cache_code,
                  const unsigned char* __restrict__ v_cache_code, const int* __restrict__ block_table,
                  const int* __restrict__ seq_lens, const float* __restrict__ k_scale, float* __restrict__ part_u,
                  float* __restrict__ part_m, float* __restrict__ part_l, int HKV, int SQ, int ENTRIES, float scale) {
    constexpr int N = COLUMNS<D>;
    constexpr int GROUPS = (D + 32 * N - 1) / (32 * N);  // a lane's columns: N from (i · 32 + lane) · N on, for each i
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;

    const int HQ = gridDim.y, h = blockIdx.y, b = blockIdx.z / SPLITS, split = blockIdx.z % SPLITS;
    assert(HQ % HKV == 0);
    const size_t q_row = (static_cast<size_t>(b) * HQ + h) * SQ + query;  // [b, h, query]
    const int kv_head = h / (HQ / HKV);                                   // HQ / HKV query heads share a key head
    const float score_scale = scale * k_scale[kv_head];
    const int length = seq_lens[b];
    const int keys_per_split = (length + SPLITS - 1) / SPLITS;
    const int visible = CAUSAL == 0 ? length : max(0, min(length, query + length - SQ + 1));
    const int first_key = split * keys_per_split, end = min(first_key + keys_per_split, visible);

    float q_lane[GROUPS][N], u[GROUPS][N];
#pragma unroll
    for (int i = 0; i < GROUPS; ++i) {
        const int d = (i * 32 + lane) * N;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            q_lane[i][j] = d < D ? float(q[q_row * D + d + j]) : 0.0f;
            u[i][j] = 0.0f;
        }
    }
    float m = -CUDART_INF_F, l = 0.0f;

    for (int key = first_key; key < end;) {
        const size_t page = block_table[static_cast<size_t>(b) * ENTRIES + key / PAGE];
        const int page_end = min(end, (key / PAGE + 1) * PAGE);
        for (; key < page_end; ++key) {
            const size_t row = ((page * PAGE + key % PAGE) * HKV + kv_head) * D;  // [page, slot, kv head, 0]
            float products = 0.0f;
#pragma unroll
            for (int i = 0; i < GROUPS; ++i) {
                const int d = (i * 32 + lane) * N;
                if (d >= D) continue;
                float k[N];
                read_numbers(&k_cache_code[row + d], k);
#pragma unroll
                for (int j = 0; j < N; ++j) products += q_lane[i][j] * k[j];
            }
            const float s = warp_sum(products) * score_scale;  // the same bits in every lane
            const float m_new = fmaxf(m, s);                   // finite from the first key on
            const float rescale = expf(m - m_new), p = expf(s - m_new);
#pragma unroll
            for (int i = 0; i < GROUPS; ++i) {
                const int d = (i * 32 + lane) * N;
                if (d >= D) continue;
                float v[N];
                read_numbers(&v_cache_code[row + d], v);
#pragma unroll
                for (int j = 0; j < N; ++j) u[i][j] = u[i][j] * rescale + p * v[j];
            }
            l = l * rescale + p;
            m = m_new;
        }
    }

    const size_t part = part_row(b, h, split, query, SQ);
#pragma unroll
    for (int i = 0; i < GROUPS; ++i) {
        const int d = (i * 32 + lane) * N;
#pragma unroll
        for (int j = 0; j < N; ++j)
            if (d < D) part_u[part * D + d + j] = u[i][j];
    }
    if (lane == 0) {
        part_m[part] = m;
        part_l[part] = l;
    }
}

// One warp per query; the lanes share the columns.
template <int D>
__global__ void __launch_bounds__(32 * WARPS)
paged_fp8_merge(const float* __restrict__ part_u, const float* __restrict__ part_m, const float* __restrict__ part_l,
                const float* __restrict__ v_scale, ELEMENT* __restrict__ o, float* __restrict__ lse, int HKV, int SQ) {
    const int lane = threadIdx.x % 32;
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;
    const int b = blockIdx.z, h = blockIdx.y;
    const size_t row = (static_cast<size_t>(b) * gridDim.y + h) * SQ + query;  // [b, h, query]
    const float value_scale = v_scale[h / (gridDim.y / HKV)];

    float m = -CUDART_INF_F;
    for (int split = 0; split < SPLITS; ++split) m = fmaxf(m, part_m[part_row(b, h, split, query, SQ)]);
    const bool empty = m == -CUDART_INF_F;  // no key is visible: exp(-inf - -inf) would be NaN
    float l = 0.0f;
    for (int split = 0; split < SPLITS && !empty; ++split) {
        const size_t part = part_row(b, h, split, query, SQ);
        l += expf(part_m[part] - m) * part_l[part];
    }
    for (int d = lane; d < D; d += 32) {
        float u = 0.0f;
        for (int split = 0; split < SPLITS && !empty; ++split) {
            const size_t part = part_row(b, h, split, query, SQ);
            u += expf(part_m[part] - m) * part_u[part * D + d];
        }
        o[row * D + d] = ELEMENT(empty ? 0.0f : u / l * value_scale);
    }
    if (lane == 0) lse[row] = empty ? -CUDART_INF_F : m + logf(l);
}
