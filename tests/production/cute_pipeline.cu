// C = A Bᵀ by CUTLASS' own pipeline for Hopper: a warp loads tiles by TMA, a warpgroup multiplies them.
//
// In a cluster of CLUSTER CTAs, which follow each other along M, all need the same tile of B: each loads a part of it and
// sends it to all (multicast). CUTLASS' PipelineTmaAsync counts the bytes, maps addresses of the other CTAs' mbarriers and
// releases a stage in all CTAs that write to it. Headers: pip install --no-deps nvidia-cutlass.
//
// weft: sizes   M=256 N=128 K=320
// weft: define  CLUSTER = 2
// weft: define  TILE = 64
// weft: define  STAGES = 3
// weft: in      a : f16[M, K] = normal
// weft: in      b : f16[N, K] = normal
// weft: out     c : f32[M, N]
// weft: option  -default-device
// weft: launch  multiply(c, N, K // TILE, tensormap(a, box=(TILE, TILE), swizzle=128), tensormap(b, box=(TILE // CLUSTER, TILE), swizzle=128))
// weft:         grid(M // TILE, N // TILE) block(256) cluster(CLUSTER) shared(STAGES * TILE * TILE * 4 + 1024) opt_in_shared
#include <cute/tensor.hpp>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cutlass/pipeline/sm90_pipeline.hpp>

using namespace cute;

using Pipeline = cutlass::PipelineTmaAsync<STAGES>;
using Staged = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<Int<TILE>, Int<TILE>>{}));
using Shared = Pipeline::SharedStorage;

__global__ void multiply(float* c, int columns, int steps, const __grid_constant__ TmaDescriptor a_map,
                         const __grid_constant__ TmaDescriptor b_map) {
    extern __shared__ __align__(1024) unsigned char tiles[];
    half_t* const a = reinterpret_cast<half_t*>(tiles);
    half_t* const b = a + STAGES * TILE * TILE;
    Shared& barriers = *reinterpret_cast<Shared*>(b + STAGES * TILE * TILE);
    const bool produces = threadIdx.x < 128;
    const int thread = threadIdx.x % 128;

    Pipeline::Params params;
    params.transaction_bytes = 2 * TILE * TILE * sizeof(half_t);
    params.role = produces ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    params.is_leader = thread == 0;
    params.num_consumers = 128;
    Pipeline pipeline(barriers, params, Shape<Int<CLUSTER>, _1, _1>{});
    if constexpr (CLUSTER > 1) {
        cluster_arrive_relaxed();
        cluster_wait();
    } else {
        __syncthreads();
    }

    if (produces) {
        if (thread == 0) {
            const int part = TILE / CLUSTER, rank = block_rank_in_cluster();
            auto state = cutlass::make_producer_start_state<Pipeline>();
            for (int step = 0; step < steps; ++step, ++state) {
                pipeline.producer_acquire(state);
                uint64_t* const arrived = reinterpret_cast<uint64_t*>(pipeline.producer_get_barrier(state));
                half_t* const to_a = a + state.index() * TILE * TILE;
                half_t* const to_b = b + state.index() * TILE * TILE + rank * part * TILE;
                SM90_TMA_LOAD_2D::copy(&a_map, arrived, 0, to_a, step * TILE, blockIdx.x * TILE);
                const int row = blockIdx.y * TILE + rank * part;
                if constexpr (CLUSTER > 1)
                    SM90_TMA_LOAD_MULTICAST_2D::copy(&b_map, arrived, (1 << CLUSTER) - 1, 0, to_b, step * TILE, row);
                else
                    SM90_TMA_LOAD_2D::copy(&b_map, arrived, 0, to_b, step * TILE, row);
            }
            pipeline.producer_tail(state);
        }
    } else {
        using Op = decltype(GMMA::ss_op_selector<half_t, half_t, float, Shape<Int<TILE>, Int<TILE>, Int<TILE>>>());
        auto mma = make_tiled_mma(Op{});
        auto slice = mma.get_thread_slice(thread);
        Tensor sum = partition_fragment_C(mma, Shape<Int<TILE>, Int<TILE>>{});
        mma.accumulate_ = GMMA::ScaleOut::Zero;
        Pipeline::PipelineState state;
        for (int step = 0; step < steps; ++step, ++state) {
            pipeline.consumer_wait(state);
            Tensor a_tile = make_tensor(make_smem_ptr(a + state.index() * TILE * TILE), Staged{});
            Tensor b_tile = make_tensor(make_smem_ptr(b + state.index() * TILE * TILE), Staged{});
            Tensor a_parts = slice.make_fragment_A(slice.partition_A(a_tile));
            Tensor b_parts = slice.make_fragment_B(slice.partition_B(b_tile));
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
            pipeline.consumer_release(state);
        }
        Tensor places = slice.partition_C(make_identity_tensor(Shape<Int<TILE>, Int<TILE>>{}));
        c += blockIdx.x * TILE * columns + blockIdx.y * TILE;
        CUTE_UNROLL
        for (int i = 0; i < size(sum); ++i) c[get<0>(places(i)) * columns + get<1>(places(i))] = sum(i);
    }
}
