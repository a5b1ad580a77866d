// FlashAttention-3's unmodified forward kernel for Hopper, and a kernel of one thread in which its host code computes the
// parameters: NVRTC compiles host functions of headers as device code (-default-device).
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/device_kernel.h"
#include "cutlass/kernel_hardware_info.h"
#include <algorithm>

// NVRTC leaves out a function of CUTLASS' record that the kernel's host code names, and never calls here.
namespace cutlass {
struct GivenHardware : KernelHardwareInfo {
    static int query_device_multiprocessor_count(int) { return 0; }
};
}  // namespace cutlass
#define KernelHardwareInfo GivenHardware

#include "static_switch.h"
#include "tile_size.h"
#include "tile_scheduler.hpp"
#include "flash_fwd_kernel_sm90.h"
#include "mainloop_fwd_sm90_tma_gmma_ws.hpp"
#include "epilogue_fwd.hpp"

using namespace cute;

constexpr bool causal = IS_CAUSAL, eight_bits = sizeof(ELEMENT) == 1;
constexpr auto tiles = tile_size_fwd_sm90(HEAD_DIM, HEAD_DIM, causal, false, sizeof(ELEMENT));
constexpr int rows = std::get<0>(tiles), keys = std::get<1>(tiles);

using Cluster = Shape<Int<CLUSTER>, _1, _1>;
using Output = cute::conditional_t<eight_bits, cutlass::bfloat16_t, ELEMENT>;
using Mainloop = flash::CollectiveMainloopFwdSm90<2, Cluster, Shape<Int<rows>, Int<keys>, Int<HEAD_DIM>>, HEAD_DIM, ELEMENT,
                                                  float, cutlass::arch::Sm90, causal, false, false, false, false, false, false,
                                                  std::get<2>(tiles), std::get<3>(tiles), false, false, false>;
using Epilogue = flash::CollectiveEpilogueFwd<Shape<Int<rows>, Int<HEAD_DIM>, Int<keys>>, Cluster, Output, cutlass::arch::Sm90,
                                              Mainloop::NumMmaThreads, false, false, false, eight_bits>;
using Scheduler = cute::conditional_t<
    causal, flash::DynamicPersistentTileScheduler<Mainloop::NumMmaThreads, Mainloop::NumProducerThreads, false, false, true>,
    flash::StaticPersistentTileScheduler<false>>;
using Attention = flash::enable_sm90<flash::FlashAttnFwdSm90<Mainloop, Epilogue, Scheduler>>;

// Arrays are [batch, length, heads, HEAD_DIM]; the logarithms of the sums [batch, heads, length].
extern "C" __global__ void make_params(unsigned char* bytes, int* facts, const ELEMENT* q, ELEMENT* k, ELEMENT* v, Output* o,
                                       float* lse, int* tile_count, int batch, int heads, int heads_kv, int queries, int length,
                                       float scale, int sms) {
    const int64_t d = HEAD_DIM, row = heads * d, row_kv = heads_kv * d;
    const int blocks = cutlass::round_up(cutlass::ceil_div(queries, rows), CLUSTER);
    Mainloop::Arguments main{
        q, {queries, HEAD_DIM, heads, batch}, {row, _1{}, d, row * queries},
        k, {length, HEAD_DIM, heads_kv, batch}, {row_kv, _1{}, d, row_kv * length},
        v, HEAD_DIM, {row_kv, _1{}, d, row_kv * length},
        nullptr, {0, HEAD_DIM, heads_kv, batch}, {0, _1{}, 0, 0}, nullptr, {0, _1{}, 0, 0}, nullptr, {0, _1{}, 0, 0},
        nullptr, {length, 0}, {0, _1{}}, nullptr, {0, _1{}}, false, nullptr, {batch, 0}, {0, _1{}},
        scale, nullptr, nullptr, nullptr, {0, 0}, {0, 0}, {0, 0}, -1, causal ? 0 : -1, 0, 0.0f, 1};
    Epilogue::Arguments end{o, {queries, HEAD_DIM, heads, batch, 1}, {row, _1{}, d, row * queries, 0},
                            nullptr, {0, _1{}, 0, 0, 0}, lse, {_1{}, queries, int64_t(heads) * queries, 0},
                            nullptr, {_1{}, 0, 0, 0}, heads_kv};
    flash::TileSchedulerArguments scheduler{blocks, heads, batch, 1, heads / heads_kv, queries, length, HEAD_DIM, HEAD_DIM,
                                            int(sizeof(ELEMENT)), tile_count};
    Attention::Params params = Attention::to_underlying_arguments({main, end, {0, sms}, scheduler});
    const unsigned char* from = reinterpret_cast<const unsigned char*>(&params);
    for (unsigned i = 0; i < sizeof(params); ++i) bytes[i] = from[i];
    auto place = [&](const void* member) { return int(static_cast<const unsigned char*>(member) - from); };
    facts[0] = sizeof(params);
    facts[1] = place(params.mainloop.tma_load_Q.get_tma_descriptor());
    facts[2] = place(params.mainloop.tma_load_K.get_tma_descriptor());
    facts[3] = place(params.mainloop.tma_load_V.get_tma_descriptor());
    facts[4] = place(params.epilogue.tma_store_O.get_tma_descriptor());
    facts[5] = Attention::SharedStorageSize;
    facts[6] = Attention::MaxThreadsPerBlock;
    facts[7] = Attention::get_grid_shape(params).x;
    facts[8] = rows;
    facts[9] = keys;
}
