// Shared memory layouts of wgmma and TMA, as CuTe defines them: C = A Bᵀ, 64 × 128 × K, for pairs of layouts.
//
// Layouts 0 to 3 are GMMA::Layout_K_{INTER, SW32, SW64, SW128}_Atom, 4 to 7 the same with MN (16-bit types only).
//     A: threads store the elements through its layout; TMA copies the atoms to `stored`; wgmma multiplies
//     B: TMA copies boxes of many atoms; threads read the elements through its layout into `back`; wgmma multiplies
// The atoms of A follow each other along K first if it is K-major, else along M; those of B in the other order, so that
// both distances of a descriptor take several values. A row of K is 256 bytes: two atoms of the widest swizzle.
// Every pair has its part of `stored`, `back` and `c`; those from FIRST to LAST run. Headers: pip install --no-deps nvidia-cutlass.
//
// weft: define  A_TYPE = "half_t"
// weft: define  B_TYPE = "half_t"
// weft: define  SUM_TYPE = "float"
// weft: define  RAW = "uint16_t"
// weft: define  RAW_SUM = "uint32_t"
// weft: define  SIZE = 2
// weft: define  HEIGHT = 64
// weft: define  WIDTH_N = 128
// weft: define  DEPTH = 256 // SIZE
// weft: define  PAIRS = 10
// weft: define  FIRST = 0
// weft: define  LAST = PAIRS - 1
// weft: define  SHARED = 256 * (HEIGHT + WIDTH_N) + 1024
// weft: in      a         : RAW[HEIGHT, DEPTH]
// weft: in      b         : RAW[WIDTH_N, DEPTH]
// weft: in      b_columns : RAW[DEPTH, WIDTH_N]
// weft: out     stored    : RAW[PAIRS, HEIGHT * DEPTH]
// weft: out     back      : RAW[PAIRS, WIDTH_N, DEPTH]
// weft: out     c         : RAW_SUM[PAIRS, HEIGHT, WIDTH_N]
// weft: option  -default-device
// weft: launch  layouts<0, 0, 1>(a, back, c, tensormap(b, shape=(WIDTH_N, DEPTH), box=(WIDTH_N, 32 // SIZE), swizzle=32), tensormap(stored, shape=(PAIRS * HEIGHT, DEPTH), box=(8, 16 // SIZE)))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 0) * (0 <= LAST))
// weft: launch  layouts<1, 1, 2>(a, back, c, tensormap(b, shape=(WIDTH_N, DEPTH), box=(WIDTH_N, 64 // SIZE), swizzle=64), tensormap(stored, shape=(PAIRS * HEIGHT, DEPTH), box=(8, 32 // SIZE), swizzle=32))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 1) * (1 <= LAST))
// weft: launch  layouts<2, 2, 3>(a, back, c, tensormap(b, shape=(WIDTH_N, DEPTH), box=(WIDTH_N, 128 // SIZE), swizzle=128), tensormap(stored, shape=(PAIRS * HEIGHT, DEPTH), box=(8, 64 // SIZE), swizzle=64))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 2) * (2 <= LAST))
// weft: launch  layouts<3, 3, 0>(a, back, c, tensormap(b, shape=(WIDTH_N, DEPTH), box=(WIDTH_N, 16 // SIZE)), tensormap(stored, shape=(PAIRS * HEIGHT, DEPTH), box=(8, 128 // SIZE), swizzle=128))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 3) * (3 <= LAST))
// weft: launch  layouts<4, 4, 5>(a, back, c, tensormap(b_columns, shape=(DEPTH, WIDTH_N), box=(DEPTH, 32 // SIZE), swizzle=32), tensormap(stored, shape=(PAIRS * DEPTH, HEIGHT), box=(8, 16 // SIZE)))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 4) * (4 <= LAST) * (SIZE == 2))
// weft: launch  layouts<5, 5, 6>(a, back, c, tensormap(b_columns, shape=(DEPTH, WIDTH_N), box=(DEPTH, 64 // SIZE), swizzle=64), tensormap(stored, shape=(PAIRS * DEPTH, HEIGHT), box=(8, 32 // SIZE), swizzle=32))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 5) * (5 <= LAST) * (SIZE == 2))
// weft: launch  layouts<6, 6, 7>(a, back, c, tensormap(b_columns, shape=(DEPTH, WIDTH_N), box=(DEPTH, 128 // SIZE), swizzle=128), tensormap(stored, shape=(PAIRS * DEPTH, HEIGHT), box=(8, 64 // SIZE), swizzle=64))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 6) * (6 <= LAST) * (SIZE == 2))
// weft: launch  layouts<7, 7, 4>(a, back, c, tensormap(b_columns, shape=(DEPTH, WIDTH_N), box=(DEPTH, 16 // SIZE)), tensormap(stored, shape=(PAIRS * DEPTH, HEIGHT), box=(8, 128 // SIZE), swizzle=128))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 7) * (7 <= LAST) * (SIZE == 2))
// weft: launch  layouts<8, 3, 7>(a, back, c, tensormap(b_columns, shape=(DEPTH, WIDTH_N), box=(DEPTH, 128 // SIZE), swizzle=128), tensormap(stored, shape=(PAIRS * HEIGHT, DEPTH), box=(8, 128 // SIZE), swizzle=128))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 8) * (8 <= LAST) * (SIZE == 2))
// weft: launch  layouts<9, 6, 2>(a, back, c, tensormap(b, shape=(WIDTH_N, DEPTH), box=(WIDTH_N, 64 // SIZE), swizzle=64), tensormap(stored, shape=(PAIRS * DEPTH, HEIGHT), box=(8, 64 // SIZE), swizzle=64))
// weft:         grid(1) block(128) shared(SHARED) opt_in_shared when((FIRST <= 9) * (9 <= LAST) * (SIZE == 2))
#include <cute/tensor.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>

using namespace cute;

template <class T, int LAYOUT>
struct Operand {
    static constexpr bool MN = LAYOUT > 3;
    static constexpr auto MAJOR = MN ? GMMA::Major::MN : GMMA::Major::K;
    static constexpr int ACROSS = (16 << LAYOUT % 4) / SIZE;  // elements of an atom in the direction that is contiguous
    using Atoms = tuple<GMMA::Layout_INTER_Atom<T, MAJOR>, GMMA::Layout_SW32_Atom<T, MAJOR>,
                        GMMA::Layout_SW64_Atom<T, MAJOR>, GMMA::Layout_SW128_Atom<T, MAJOR>>;
    using Atom = tuple_element_t<LAYOUT % 4, Atoms>;
    template <int ROWS, bool K_FIRST>
    using Tile = decltype(tile_to_shape(Atom{}, Shape<Int<ROWS>, Int<DEPTH>>{},
                                        conditional_t<K_FIRST, Step<_2, _1>, Step<_1, _2>>{}));
};

template <int PAIR, int A_LAYOUT, int B_LAYOUT>
__global__ void layouts(const RAW* a, RAW* back, RAW_SUM* c, const __grid_constant__ TmaDescriptor b_map,
                        const __grid_constant__ TmaDescriptor stored_map) {
    using A = Operand<A_TYPE, A_LAYOUT>;
    using B = Operand<B_TYPE, B_LAYOUT>;
    if constexpr (FIRST <= PAIR && PAIR <= LAST && (SIZE == 2 || !(A::MN || B::MN))) {
        using ATile = typename A::template Tile<HEIGHT, !A::MN>;
        using BTile = typename B::template Tile<WIDTH_N, B::MN>;
        using Op = decltype(GMMA::ss_op_selector<A_TYPE, B_TYPE, SUM_TYPE, Shape<Int<HEIGHT>, Int<WIDTH_N>, Int<DEPTH>>,
                                                 A::MAJOR, B::MAJOR>());
        extern __shared__ __align__(1024) unsigned char tiles[];
        unsigned char* const b_begin = tiles + 256 * HEIGHT;
        uint64_t& arrived = *reinterpret_cast<uint64_t*>(tiles + 256 * (HEIGHT + WIDTH_N));
        Tensor a_bits = make_tensor(make_smem_ptr(reinterpret_cast<RAW*>(tiles)), ATile{});
        Tensor b_bits = make_tensor(make_smem_ptr(reinterpret_cast<RAW*>(b_begin)), BTile{});

        if (threadIdx.x == 0) initialize_barrier(arrived, 1);
        __syncthreads();
        if (threadIdx.x == 0) {
            set_barrier_transaction_bytes(arrived, 256 * WIDTH_N);
            for (int i = 0; i < (B::MN ? WIDTH_N : DEPTH); i += B::ACROSS) {
                RAW* const box = raw_pointer_cast(&b_bits(B::MN ? i : 0, B::MN ? 0 : i));
                SM90_TMA_LOAD_2D::copy(&b_map, &arrived, 0, box, i, 0);
            }
        }
        for (int i = threadIdx.x; i < HEIGHT * DEPTH; i += blockDim.x) a_bits(i / DEPTH, i % DEPTH) = a[i];
        tma_store_fence();
        __syncthreads();
        wait_barrier(arrived, 0);
        back += PAIR * WIDTH_N * DEPTH;
        for (int i = threadIdx.x; i < WIDTH_N * DEPTH; i += blockDim.x) back[i] = b_bits(i / DEPTH, i % DEPTH);

        auto mma = make_tiled_mma(Op{});
        auto thread = mma.get_thread_slice(threadIdx.x);
        Tensor a_values = make_tensor(make_smem_ptr(reinterpret_cast<A_TYPE*>(tiles)), ATile{});
        Tensor b_values = make_tensor(make_smem_ptr(reinterpret_cast<B_TYPE*>(b_begin)), BTile{});
        Tensor a_parts = thread.make_fragment_A(thread.partition_A(a_values));
        Tensor b_parts = thread.make_fragment_B(thread.partition_B(b_values));
        Tensor sum = partition_fragment_C(mma, Shape<Int<HEIGHT>, Int<WIDTH_N>>{});
        mma.accumulate_ = GMMA::ScaleOut::Zero;
        warpgroup_fence_operand(sum);
        warpgroup_arrive();
        CUTE_UNROLL
        for (int k = 0; k < size<2>(a_parts); ++k) {
            gemm(mma, a_parts(_, _, k), b_parts(_, _, k), sum);
            mma.accumulate_ = GMMA::ScaleOut::One;
        }
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(sum);

        Tensor places = thread.partition_C(make_identity_tensor(Shape<Int<HEIGHT>, Int<WIDTH_N>>{}));
        c += PAIR * HEIGHT * WIDTH_N;
        CUTE_UNROLL
        for (int i = 0; i < size(sum); ++i)
            c[get<0>(places(i)) * WIDTH_N + get<1>(places(i))] = reinterpret_cast<const RAW_SUM&>(sum(i));

        if (threadIdx.x == 0) {
            constexpr int ROWS = A::MN ? DEPTH : HEIGHT, COLUMNS = A::MN ? HEIGHT : DEPTH;
            for (int row = 0; row < ROWS; row += 8)
                for (int column = 0; column < COLUMNS; column += A::ACROSS) {
                    RAW* const atom = raw_pointer_cast(&a_bits(A::MN ? column : row, A::MN ? row : column));
                    SM90_TMA_STORE_2D::copy(&stored_map, atom, column, PAIR * ROWS + row);
                }
            tma_store_arrive();
            tma_store_wait<0>();
        }
    }
}
