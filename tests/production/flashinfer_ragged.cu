// FlashInfer's unmodified prefill kernel for a batch of packed sequences, judged by the task `sdpa_varlen`.
// Headers: pip install --no-deps flashinfer-python; -I flashinfer/data/include.
//
// The tiling is that of flashinfer_prefill.cu. FlashInfer plans on the host which CTA has which rows of which sequence: a
// kernel before does it here. A kernel after turns logarithms to base 2 into natural ones. FlashInfer's causal mask is
// aligned at the end, for sequences with at least as many keys as queries.
//
// weft: sizes     ENDS=3 HQ=2 HKV=1 TOTAL_Q=40 TOTAL_K=70 D=64
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL  = 0
// weft: define    MMA_KV  = 2
// weft: require   D >= 64
// weft: require   2 ** ceil(log2(HQ // HKV)) == HQ // HKV
// weft: in        q    : ELEMENT[TOTAL_Q, HQ, D]   = normal
// weft: in        k, v : ELEMENT[TOTAL_K, HKV, D] = normal
// weft: in        cu_seqlens_q, cu_seqlens_k : i32[ENDS] = arange
// weft: out       o    : ELEMENT[TOTAL_Q, HQ, D]
// weft: out       lse  : f32[HQ, TOTAL_Q]
// weft: scalar    null : u64 = 0
// weft: scalar    no : u8 = 0
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: scalar    group : u32 = HQ // HKV
// weft: define    CTAS = TOTAL_Q * HQ // HKV // 64 + ENDS - 1
// weft: workspace request, tile, kv_tile : i32[CTAS]
// weft: workspace valid : u8[CTAS]
// weft: workspace chunk : i32[1]
// weft: workspace lse2 : f32[TOTAL_Q, HQ]
// weft: option    -default-device
// weft: launch    list_tiles(cu_seqlens_q, request, tile, kv_tile, valid, chunk, ENDS, group) grid(1) block(1)
// weft: launch    BatchPrefillWithRaggedKVCacheKernel<Traits<{D}>, Params>({
// weft:             q, k, v, null, cu_seqlens_q, cu_seqlens_k, null, null, null, o, lse2, null,
// weft:             group, 0, 0, ceil(log2(group)), group, HQ, HKV, HQ * D, D, HKV * D, D, HKV * D, D, 0, 0, 0, 0, 0, 0,
// weft:             -1, 0.0, scale, 1.0, 1.0, request, tile, kv_tile, null, cu_seqlens_q, chunk, valid, TOTAL_Q, null,
// weft:             CTAS, no, null, null, 0, null})
// weft:           grid(CTAS, 1, HKV) block(32, 4) shared(2 * D * (64 + 32 * MMA_KV)) opt_in_shared
// weft: launch    natural(lse2, lse, TOTAL_Q, HQ) grid(1) block(128)
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;

static_assert(CAUSAL == 0 || CAUSAL == 2, "CAUSAL is 0 (none) or 2 (bottom right)");

using Params = BatchPrefillRaggedParams<ELEMENT, ELEMENT, ELEMENT, int32_t>;
using Variant = DefaultAttention</*custom mask*/ false, /*window*/ false, /*soft cap*/ false, /*alibi*/ false>;

template <int D>
using Traits = KernelTraits<CAUSAL ? MaskMode::kCausal : MaskMode::kNone, /*rows*/ 64, /*MMA_Q*/ 1, MMA_KV, D / 16,
                            D / 16, /*warps along Q*/ 4, /*along KV*/ 1, PosEncodingMode::kNone, ELEMENT, ELEMENT,
                            ELEMENT, float, int32_t, Variant, kPrefillLauncherRepacksFp4>;

__global__ void list_tiles(const int* ends, int* request, int* tile, int* kv_tile, unsigned char* valid, int* chunk,
                           int ENDS, int group) {
    const int ctas = CTAS;
    int cta = 0;
    for (int b = 0; b + 1 < ENDS; ++b) {
        const int rows = (ends[b + 1] - ends[b]) * group;
        for (int i = 0; i * 64 < rows; ++i, ++cta) {
            request[cta] = b;
            tile[cta] = i;
            kv_tile[cta] = 0;
            valid[cta] = 1;
        }
    }
    for (; cta < ctas; ++cta) request[cta] = tile[cta] = kv_tile[cta] = valid[cta] = 0;
    *chunk = 0;
}

__global__ void natural(const float* base2, float* lse, int TOTAL_Q, int HQ) {
    for (int i = threadIdx.x; i < TOTAL_Q * HQ; i += blockDim.x)
        lse[i % HQ * TOTAL_Q + i / HQ] = base2[i] * 0.693147180559945f;
}
