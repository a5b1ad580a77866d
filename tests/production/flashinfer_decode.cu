// FlashInfer's unmodified decode kernel for a single request: one query over a cache of S keys.
// Headers: pip install --no-deps flashinfer-python; -I flashinfer/data/include.
//
// The sizes are those that SingleDecodeWithKVCacheDispatched chooses on the host for 16-bit types, groups below 8 and
// compute capability 8.x: 128 threads, 8 elements each along D, two stages.
//
// weft: sizes     HQ=4 HKV=4 S=100 D=64
// weft: define    ELEMENT = "half"
// weft: define    GROUP   = HQ // HKV
// weft: define    TILE    = max(1, 8 * (2 - GROUP))
// weft: define    DEPTH   = 128 // (D // 8 * GROUP)
// weft: in        q    : ELEMENT[HQ, D]     = normal
// weft: in        k, v : ELEMENT[S, HKV, D] = normal
// weft: out       o    : ELEMENT[HQ, D]
// weft: out       lse  : f32[HQ]
// weft: scalar    null : u64 = 0
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: option    -default-device
// weft: launch    SingleDecodeWithKVCacheKernel<PosEncodingMode::kNone, 2, TILE, 8, {D // 8}, GROUP, DEPTH, Variant, Params>({q, k, v, o, lse, null, S, HQ, HKV, HQ * D, D, HKV * D, D, -1, 0.0, scale, 1.0, 1.0, S})
// weft:           grid(1, HKV) block(D // 8, GROUP, DEPTH) shared(8 * GROUP * TILE * DEPTH * D + 8 * GROUP * DEPTH)
// weft:           opt_in_shared
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;

using Params = SingleDecodeParams<ELEMENT, ELEMENT, ELEMENT>;
using Variant = DefaultAttention</*custom mask*/ false, /*window*/ false, /*soft cap*/ false, /*alibi*/ false>;
