// The backward pass of attention, one warp per query for dQ, one warp per key for dK and dV.
//
//     P = exp(Q Kᵀ · scale - LSE),   dV = Pᵀ dO,   dP = dO Vᵀ,   delta = Σ_d dO ∘ O
//     dS = P ∘ (dP - delta),   dQ = scale · dS K,   dK = scale · dSᵀ Q
//
// Idea      P is computed again from the LSE of the forward pass, so no scores are kept. dQ sums over keys, dK and dV
//           over queries: two kernels, each with its own sums in registers, so there is no atomic and the result has
//           the same bits in every run. A kernel before them computes delta, one number per query.
// History   The formulas of FlashAttention (Dao et al., 2022). Like `scalar` it has no tensor cores, no shared memory
//           and no barrier. Lanes share the head dimension; two sums of a warp per query and key give S and dP.
// Levers    WARPS: queries or keys per CTA.
// Supports  ELEMENT float, half, __nv_bfloat16 (arithmetic is fp32 throughout, gradients are rounded once);
//           any D, SQ, SKV ≥ 1; HQ a multiple of HKV (grouped queries: dK and dV sum over the group);
//           CAUSAL 0 none, 1 top_left (query i sees keys ≤ i), 2 bottom_right (keys ≤ i + SKV - SQ).
//           A query that sees no key has LSE = -inf and adds nothing.
//
// weft: sizes     B=1 HQ=4 HKV=2 SQ=33 SKV=45 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    WARPS = 4
// weft: in        q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: in        o    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        lse  : f32[B, HQ, SQ] = normal
// weft: in        do   : ELEMENT[B, HQ, SQ, D] = normal
// weft: workspace delta : f32[B, HQ, SQ]
// weft: out       dq   : ELEMENT[B, HQ, SQ, D]
// weft: out       dk, dv : ELEMENT[B, HKV, SKV, D]
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: launch    backward_delta<{D}>(o, do, delta, SQ)
// weft:           grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)
// weft: launch    backward_dq<{D}>(q, k, v, lse, do, delta, dq, HKV, SQ, SKV, scale)
// weft:           grid(cdiv(SQ, WARPS), HQ, B) block(32 * WARPS)
// weft: launch    backward_dkv<{D}>(q, k, v, lse, do, delta, dk, dv, HQ, SQ, SKV, scale)
// weft:           grid(cdiv(SKV, WARPS), HKV, B) block(32 * WARPS)

#include <assert.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

constexpr unsigned ALL_LANES = 0xffffffffu;
static_assert(0 <= CAUSAL && CAUSAL <= 2, "CAUSAL is 0 (none), 1 (top left) or 2 (bottom right)");

// The keys that a query sees are always a prefix: 0 ≤ key < visible_keys(query).
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    const int diagonal = CAUSAL == 1 ? query : query + SKV - SQ;  // the last visible key; may be out of range
    return max(0, min(SKV, diagonal + 1));
}

// The first query that sees a key; later ones do, too. SQ or more if none does.
__device__ __forceinline__ int first_query(int key, int SQ, int SKV) {
    if (CAUSAL == 0) return 0;
    return max(0, CAUSAL == 1 ? key : key - SKV + SQ);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(ALL_LANES, x, offset);
    return x;
}

template <int D>
struct Row {
    static constexpr int PER_LANE = (D + 31) / 32;  // a lane's columns: lane, lane + 32, lane + 64 …
    float at[PER_LANE];

    __device__ __forceinline__ void load(const ELEMENT* __restrict__ from) {
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + threadIdx.x % 32;
            at[i] = d < D ? float(from[d]) : 0.0f;
        }
    }
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) at[i] = 0.0f;
    }
    __device__ __forceinline__ void add(float factor, const Row& other) {
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) at[i] += factor * other.at[i];
    }
    __device__ __forceinline__ void store(ELEMENT* __restrict__ to, float factor) const {
#pragma unroll
        for (int i = 0; i < PER_LANE; ++i) {
            const int d = i * 32 + threadIdx.x % 32;
            if (d < D) to[d] = ELEMENT(at[i] * factor);
        }
    }
};

// The same bits in every lane.
template <int D>
__device__ __forceinline__ float dot(const Row<D>& x, const Row<D>& y) {
    float products = 0.0f;
#pragma unroll
    for (int i = 0; i < Row<D>::PER_LANE; ++i) products += x.at[i] * y.at[i];
    return warp_sum(products);
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
backward_delta(const ELEMENT* __restrict__ o, const ELEMENT* __restrict__ d_o, float* __restrict__ delta, int SQ) {
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;
    const size_t row = (static_cast<size_t>(blockIdx.z) * gridDim.y + blockIdx.y) * SQ + query;  // [b, h, query]
    Row<D> o_row, do_row;
    o_row.load(o + row * D);
    do_row.load(d_o + row * D);
    const float sum = dot<D>(o_row, do_row);
    if (threadIdx.x % 32 == 0) delta[row] = sum;
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
backward_dq(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
            const float* __restrict__ lse, const ELEMENT* __restrict__ d_o, const float* __restrict__ delta,
            ELEMENT* __restrict__ dq, int HKV, int SQ, int SKV, float scale) {
    const int query = blockIdx.x * WARPS + threadIdx.x / 32;
    if (query >= SQ) return;
    const int HQ = gridDim.y, b = blockIdx.z, h = blockIdx.y;
    assert(HQ % HKV == 0);
    const size_t row = (static_cast<size_t>(b) * HQ + h) * SQ + query;     // [b, h, query]
    const size_t kv_head = static_cast<size_t>(b) * HKV + h / (HQ / HKV);  // HQ / HKV query heads share [b, kv head]

    Row<D> q_row, do_row, k_row, v_row, sum;
    q_row.load(q + row * D);
    do_row.load(d_o + row * D);
    sum.clear();
    const float log_sum = lse[row], own_delta = delta[row];
    const int end = visible_keys(query, SQ, SKV);
    for (int key = 0; key < end; ++key) {
        const size_t kv_row = (kv_head * SKV + key) * D;  // k, v at [b, kv head, key, 0]
        k_row.load(k + kv_row);
        v_row.load(v + kv_row);
        const float p = expf(dot<D>(q_row, k_row) * scale - log_sum);
        const float ds = p * (dot<D>(do_row, v_row) - own_delta);
        sum.add(ds, k_row);
    }
    sum.store(dq + row * D, scale);
}

template <int D>
__global__ void __launch_bounds__(32 * WARPS)
backward_dkv(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k, const ELEMENT* __restrict__ v,
             const float* __restrict__ lse, const ELEMENT* __restrict__ d_o, const float* __restrict__ delta,
             ELEMENT* __restrict__ dk, ELEMENT* __restrict__ dv, int HQ, int SQ, int SKV, float scale) {
    const int key = blockIdx.x * WARPS + threadIdx.x / 32;
    if (key >= SKV) return;
    const int HKV = gridDim.y, b = blockIdx.z, group = HQ / HKV;
    const size_t kv_row = ((static_cast<size_t>(b) * HKV + blockIdx.y) * SKV + key) * D;

    Row<D> k_row, v_row, q_row, do_row, dk_sum, dv_sum;
    k_row.load(k + kv_row);
    v_row.load(v + kv_row);
    dk_sum.clear();
    dv_sum.clear();
    for (int member = 0; member < group; ++member) {
        const size_t head = static_cast<size_t>(b) * HQ + blockIdx.y * group + member;  // [b, h]
        for (int query = first_query(key, SQ, SKV); query < SQ; ++query) {
            const size_t row = head * SQ + query;
            q_row.load(q + row * D);
            do_row.load(d_o + row * D);
            const float p = expf(dot<D>(q_row, k_row) * scale - lse[row]);
            const float ds = p * (dot<D>(do_row, v_row) - delta[row]);
            dv_sum.add(p, do_row);
            dk_sum.add(ds, q_row);
        }
    }
    dk_sum.store(dk + kv_row, scale);
    dv_sum.store(dv + kv_row, 1.0f);
}
