// FlashInfer's unmodified prefill kernel for Hopper (a single request), and a kernel of one thread in which its host code
// computes the parameters.
#include "cute/tensor.hpp"
#include <algorithm>
#include <vector>
#define FLASHINFER_CUTLASS_UTILS_CUH_
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

using namespace cute;
using namespace flashinfer;

using Element = ELEMENT;
using Params = SinglePrefillParams<Element, Element, Element>;
constexpr auto tile = getCTATileSize<HEAD_DIM, HEAD_DIM, IS_CAUSAL>();
constexpr int rows = get<0>(tile), keys = get<1>(tile);
using Traits = AttentionKernelTraits<true, HEAD_DIM, HEAD_DIM, rows, keys, 2, Element, Element, Element, int32_t,
                                     StandardAttention>;
using Mainloop = CollectiveMainloop<Params::AdditionalParams, Traits, IS_CAUSAL>;
using Epilogue = CollectiveEpilogue<Traits>;
using Scheduler = SingleTileScheduler;

// Arrays are [length, heads, HEAD_DIM]; the logarithms of the sums [length, heads].
extern "C" __global__ void make_params(unsigned char* bytes, int* facts, const Element* q, Element* k, Element* v, Element* o,
                                       float* lse, int heads, int heads_kv, int queries, int length, float scale) {
    const int64_t d = HEAD_DIM, row = heads * d, row_kv = heads_kv * d;
    Mainloop::Params main = Mainloop::to_underlying_arguments(
        {q, get_gmem_layout(queries, heads, HEAD_DIM, row, d), k, get_gmem_layout(length, heads_kv, HEAD_DIM, row_kv, d), v,
         get_gmem_layout(length, heads_kv, HEAD_DIM, row_kv, d), -1, {0.0f, scale, nullptr, nullptr, nullptr}});
    Epilogue::Params end = Epilogue::to_underlying_arguments(
        {o, get_gmem_layout(queries, heads, HEAD_DIM, row, d), lse, get_lse_gmem_layout(queries, heads)});
    Scheduler::Params scheduler = Scheduler::to_underlying_arguments(
        {cutlass::ceil_div(queries, rows), heads, queries, length, cutlass::FastDivmod(heads / heads_kv)});
    unsigned char* to = bytes;
    auto append = [&](const auto& part) {
        const unsigned char* from = reinterpret_cast<const unsigned char*>(&part);
        for (unsigned i = 0; i < sizeof(part); ++i) to[i] = from[i];
        to += sizeof(part);
    };
    append(main);
    append(end);
    append(scheduler);
    auto place = [&](const void* member) {
        return int(static_cast<const unsigned char*>(member) - reinterpret_cast<const unsigned char*>(&main));
    };
    const int known[] = {int(sizeof(main)), int(sizeof(end)), int(sizeof(scheduler)),
                         place(main.tma_load_Q.get_tma_descriptor()), place(main.tma_load_K.get_tma_descriptor()),
                         place(main.tma_load_V.get_tma_descriptor()), int(sizeof(Traits::SharedStorage)),
                         Traits::NUM_THREADS, rows, keys};
    for (int i = 0; i < 10; ++i) facts[i] = known[i];
}
