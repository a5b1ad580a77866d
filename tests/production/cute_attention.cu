// Fused attention on CuTe's tensors: tensor cores through MMA atoms, ldmatrix copies, cp.async, swizzled shared memory.
//
//     O = softmax(Q Kᵀ · scale + mask) V,   LSE = log Σ_n exp(Q Kᵀ · scale + mask)
//
// A CTA owns 16 queries per warp and loops over the keys in tiles of BLOCK_N. S, P and the unnormalised output stay in
// the registers of the accumulator: a fragment of S has the layout that the second product takes as its A operand. The
// copy of V overlaps the first product, that of the next K the second.
// Supports ELEMENT half, __nv_bfloat16; D a multiple of 8 up to 128; any SQ, SKV ≥ 1; grouped queries;
// CAUSAL 0 none, 1 top_left, 2 bottom_right. Headers: pip install --no-deps nvidia-cutlass.
//
// weft: sizes   B=1 HQ=2 HKV=1 SQ=77 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WARPS = 2
// weft: define  BLOCK_M = 16 * WARPS
// weft: define  BLOCK_N = 32
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: option  -default-device
// weft: launch  cute_attention<{D}>(q, k, v, o, lse, HKV, SQ, SKV, scale)
// weft:         grid(cdiv(SQ, BLOCK_M), HQ, B) block(32 * WARPS)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

#include <cute/tensor.hpp>

using namespace cute;

constexpr int THREADS = 32 * WARPS;
constexpr float LOG2_E = 1.4426950408889634f;

using T = conditional_t<is_same_v<ELEMENT, half>, half_t, bfloat16_t>;
using Atom = conditional_t<is_same_v<T, half_t>, SM80_16x8x16_F32F16F16F32_TN, SM80_16x8x16_F32BF16BF16F32_TN>;
using Mma = TiledMMA<MMA_Atom<Atom>, Layout<Shape<Int<WARPS>, _1, _1>>, Tile<Int<BLOCK_M>, _16, _16>>;
using Rows = Copy_Atom<SM75_U32x4_LDSM_N, T>;
using Columns = Copy_Atom<SM75_U16x8_LDSM_T, T>;
// Eight threads move 128 bytes of a row, 16 each.
using FromGlobal = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint128_t>, T>{},
                                            Layout<Shape<Int<THREADS / 8>, _8>, Stride<_8, _1>>{},
                                            Layout<Shape<_1, _8>>{}));

struct alignas(4) Pair {
    T left, right;
};

template <int D>
struct Tiles {
    static_assert(D % 8 == 0 && D <= 128, "rows are copied 16 bytes at a time");
    static constexpr int COLUMNS = (D + 63) / 64 * 64;
    using Part = decltype(composition(Swizzle<3, 3, 3>{}, Layout<Shape<_8, _64>, Stride<_64, _1>>{}));
    using Q = decltype(tile_to_shape(Part{}, Shape<Int<BLOCK_M>, Int<COLUMNS>>{}));
    using KV = decltype(tile_to_shape(Part{}, Shape<Int<BLOCK_N>, Int<COLUMNS>>{}));
    using Vt = decltype(composition(KV{}, make_layout(Shape<Int<COLUMNS>, Int<BLOCK_N>>{}, GenRowMajor{})));
};

// The keys that a query sees are a prefix.
__device__ __forceinline__ int visible_keys(int query, int SQ, int SKV) {
    if (CAUSAL == 0) return SKV;
    return max(0, min(SKV, (CAUSAL == 1 ? query : query + SKV - SQ) + 1));
}

// Rows from `rows` on and columns from D on become zero.
template <int D, class Global, class Shared>
__device__ __forceinline__ void load_tile(Global const& global, Shared&& shared, int rows) {
    auto mine = FromGlobal{}.get_slice(threadIdx.x);
    Tensor from = mine.partition_S(global);
    Tensor to = mine.partition_D(shared);
    Tensor at = mine.partition_S(make_identity_tensor(shape(global)));
    CUTE_UNROLL
    for (int i = 0; i < size<1>(to); ++i) {
        CUTE_UNROLL
        for (int j = 0; j < size<2>(to); ++j) {
            const bool inside = get<0>(at(0, i, j)) < rows && get<1>(at(0, i, j)) < D;
            copy(FromGlobal{}.with(inside), from(_, i, j), to(_, i, j));
        }
    }
    cp_async_fence();
}

// An accumulator ((2, 2), M, N) as rows and columns: ((2, M), (2, N)).
template <class Fragment>
__device__ __forceinline__ auto by_rows(Fragment&& fragment) {
    auto split = logical_divide(fragment.layout(), Shape<_2>{});
    return make_tensor(fragment.data(), make_layout(make_layout(get<0, 1>(split), get<1>(split)),
                                                    make_layout(get<0, 0>(split), get<2>(split))));
}

// Four lanes hold a row.
template <class Combine>
__device__ __forceinline__ float across_row(float value, Combine combine) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return combine(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

template <int D>
__global__ void cute_attention(const ELEMENT* __restrict__ q, const ELEMENT* __restrict__ k,
                               const ELEMENT* __restrict__ v, ELEMENT* __restrict__ o, float* __restrict__ lse, int HKV,
                               int SQ, int SKV, float scale) {
    using Tile = Tiles<D>;
    constexpr int COLUMNS = Tile::COLUMNS;
    alignas(128) __shared__ T shared_q[cosize_v<typename Tile::Q>];
    alignas(128) __shared__ T shared_k[cosize_v<typename Tile::KV>];
    alignas(128) __shared__ T shared_v[cosize_v<typename Tile::KV>];

    const int head = blockIdx.z * gridDim.y + blockIdx.y, group = gridDim.y / HKV;
    const size_t kv_start = size_t(blockIdx.z * HKV + blockIdx.y / group) * SKV * D;
    const int first = blockIdx.x * BLOCK_M, rows = min(BLOCK_M, SQ - first);
    const size_t q_start = (size_t(head) * SQ + first) * D;

    auto tile_of = [](auto* pointer, auto height) {
        return make_tensor(make_gmem_ptr(pointer), make_shape(height, Int<COLUMNS>{}), Stride<Int<D>, _1>{});
    };
    auto keys_from = [&](const ELEMENT* base, int key) {
        return tile_of(reinterpret_cast<const T*>(base) + kv_start + size_t(key) * D, Int<BLOCK_N>{});
    };
    Tensor sQ = make_tensor(make_smem_ptr(shared_q), typename Tile::Q{});
    Tensor sK = make_tensor(make_smem_ptr(shared_k), typename Tile::KV{});
    Tensor sV = make_tensor(make_smem_ptr(shared_v), typename Tile::KV{});
    Tensor sVt = make_tensor(make_smem_ptr(shared_v), typename Tile::Vt{});

    Mma mma;
    auto mine = mma.get_slice(threadIdx.x);
    Tensor rQ = mine.partition_fragment_A(sQ);
    Tensor rK = mine.partition_fragment_B(sK);
    Tensor rVt = mine.partition_fragment_B(make_tensor(sVt.data(), get_nonswizzle_portion(typename Tile::Vt{})));
    auto copy_q = make_tiled_copy_A(Rows{}, mma);
    auto copy_k = make_tiled_copy_B(Rows{}, mma);
    auto copy_v = make_tiled_copy_B(Columns{}, mma);
    Tensor from_q = copy_q.get_slice(threadIdx.x).partition_S(sQ);
    Tensor from_k = copy_k.get_slice(threadIdx.x).partition_S(sK);
    Tensor from_v = copy_v.get_slice(threadIdx.x).partition_S(sVt);
    Tensor to_q = copy_q.get_slice(threadIdx.x).retile_D(rQ);
    Tensor to_k = copy_k.get_slice(threadIdx.x).retile_D(rK);
    Tensor to_v = copy_v.get_slice(threadIdx.x).retile_D(rVt);

    Tensor U = partition_fragment_C(mma, Shape<Int<BLOCK_M>, Int<COLUMNS>>{});
    clear(U);
    Tensor u = by_rows(U);
    Tensor m = make_tensor<float>(Shape<Int<size<0>(u)>>{});
    Tensor l = make_fragment_like(m);
    fill(m, -CUDART_INF_F);
    clear(l);
    // Position of an accumulator of m16n8: the lane's first row and column; rows are 8 apart, pairs of columns too.
    const int lane = threadIdx.x % 32, top = threadIdx.x / 32 * 16 + lane / 4, left = lane % 4 * 2;

    load_tile<D>(tile_of(reinterpret_cast<const T*>(q) + q_start, Int<BLOCK_M>{}), sQ, rows);
    const int keys = visible_keys(first + rows - 1, SQ, SKV);
    if (keys > 0) load_tile<D>(keys_from(k, 0), sK, SKV);
    for (int start = 0; start < keys; start += BLOCK_N) {
        cp_async_wait<0>();
        __syncthreads();  // Q and K are here, and no thread reads the last V any more
        load_tile<D>(keys_from(v, start), sV, SKV - start);
        Tensor S = partition_fragment_C(mma, Shape<Int<BLOCK_M>, Int<BLOCK_N>>{});
        clear(S);
        CUTE_UNROLL
        for (int part = 0; part < size<2>(rQ); ++part) {
            copy(copy_q, from_q(_, _, part), to_q(_, _, part));
            copy(copy_k, from_k(_, _, part), to_k(_, _, part));
            gemm(mma, rQ(_, _, part), rK(_, _, part), S);
        }
        cp_async_wait<0>();
        __syncthreads();  // V is here, and no thread reads this K any more
        if (start + BLOCK_N < keys) load_tile<D>(keys_from(k, start + BLOCK_N), sK, SKV - start - BLOCK_N);

        Tensor s = by_rows(S);
        CUTE_UNROLL
        for (int row = 0; row < size<0>(s); ++row) {
            const int seen = visible_keys(first + top + row * 8, SQ, SKV) - start - left;
            float largest = m(row);
            CUTE_UNROLL
            for (int column = 0; column < size<1>(s); ++column) {
                s(row, column) = column / 2 * 8 + column % 2 < seen ? s(row, column) * scale : -CUDART_INF_F;
                largest = fmaxf(largest, s(row, column));
            }
            largest = across_row(largest, [](float a, float b) { return fmaxf(a, b); });
            const float base = largest == -CUDART_INF_F ? 0.0f : largest;  // a row that sees no key yet
            const float rescale = exp2f((m(row) - base) * LOG2_E);
            m(row) = largest;
            l(row) *= rescale;
            CUTE_UNROLL
            for (int column = 0; column < size<1>(s); ++column) {
                s(row, column) = exp2f((s(row, column) - base) * LOG2_E);
                l(row) += s(row, column);
            }
            CUTE_UNROLL
            for (int column = 0; column < size<1>(u); ++column) u(row, column) *= rescale;
        }

        Tensor P = make_fragment_like<T>(S);
        CUTE_UNROLL
        for (int i = 0; i < size(P); ++i) P(i) = T(S(i));
        auto halves = logical_divide(P.layout(), Shape<Underscore, Underscore, _2>{});
        Tensor rP = make_tensor(P.data(), make_layout(make_layout(get<0>(halves), get<2, 0>(halves)), get<1>(halves),
                                                      get<2, 1>(halves)));
        CUTE_UNROLL
        for (int part = 0; part < size<2>(rP); ++part) {
            copy(copy_v, from_v(_, _, part), to_v(_, _, part));
            gemm(mma, rP(_, _, part), rVt(_, _, part), U);
        }
    }
    cp_async_wait<0>();

    T* const out = reinterpret_cast<T*>(o) + q_start;
    CUTE_UNROLL
    for (int row = 0; row < size<0>(u); ++row) {
        const int query = top + row * 8;
        const float sum = across_row(l(row), [](float a, float b) { return a + b; });
        const float factor = sum > 0.0f ? 1.0f / sum : 0.0f;
        if (query >= rows) continue;
        if (left == 0) lse[size_t(head) * SQ + first + query] = sum > 0.0f ? m(row) + logf(sum) : -CUDART_INF_F;
        CUTE_UNROLL
        for (int pair = 0; pair < size<1>(u); pair += 2) {
            const int column = left + pair * 4;
            const Pair both{T(u(row, pair) * factor), T(u(row, pair + 1) * factor)};
            if (column < D) *reinterpret_cast<Pair*>(out + query * D + column) = both;
        }
    }
}
