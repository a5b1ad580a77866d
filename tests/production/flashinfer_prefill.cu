// FlashInfer's unmodified prefill kernel for a single request: tensor cores, ldmatrix, cp.async, swizzled
// shared memory. The causal mask is aligned at the end: the last query sees every key.
// Headers: pip install --no-deps flashinfer-python; -I flashinfer/data/include.
//
// The tiling is one of those among which SinglePrefillWithKVCacheDispatched chooses on the host: four warps of 16 rows
// each, where query heads of a group are rows too, and MMA_KV · 16 keys a step. `group_size` is a uint_fastdiv, whose
// members for a power of two are the divisor, 0, 0, its logarithm and the divisor again.
//
// weft: sizes     HQ=2 HKV=1 SQ=20 SKV=70 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL  = 1
// weft: define    MMA_KV  = 2
// weft: in        q    : ELEMENT[SQ, HQ, D]   = normal
// weft: in        k, v : ELEMENT[SKV, HKV, D] = normal
// weft: out       o    : ELEMENT[SQ, HQ, D]
// weft: out       lse  : f32[SQ, HQ]
// weft: scalar    null : u64 = 0
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: scalar    group : u32 = HQ // HKV
// weft: option    -default-device
// weft: launch    SinglePrefillWithKVCacheKernel<Traits<{D}>, Params>({q, k, v, null, o, lse, null, group, 0, 0, ceil(log2(group)), group, SQ, SKV, HQ, HKV, HQ * D, D, HKV * D, D, HKV * D, D, D, -1, 0.0, scale, 1.0, 1.0, 0})
// weft:           grid(cdiv(SQ * group, 64), 1, HKV) block(32, 4) shared(2 * D * (64 + 32 * MMA_KV)) opt_in_shared
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;

using Params = SinglePrefillParams<ELEMENT, ELEMENT, ELEMENT>;
using Variant = DefaultAttention</*custom mask*/ false, /*window*/ false, /*soft cap*/ false, /*alibi*/ false>;

template <int D>
using Traits = KernelTraits<CAUSAL ? MaskMode::kCausal : MaskMode::kNone, /*rows*/ 64, /*MMA_Q*/ 1, MMA_KV, D / 16,
                            D / 16, /*warps along Q*/ 4, /*along KV*/ 1, PosEncodingMode::kNone, ELEMENT, ELEMENT,
                            ELEMENT, float, int32_t, Variant, kPrefillLauncherRepacksFp4>;
