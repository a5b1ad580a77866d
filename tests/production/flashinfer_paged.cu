// FlashInfer's unmodified decode kernel for a batch over a paged cache, judged by the task `paged_decode`.
// Headers: pip install --no-deps flashinfer-python; -I flashinfer/data/include.
//
// The sizes are those that BatchDecodeWithPagedKVCacheDispatched chooses on the host for 16-bit types and groups up to 4:
// 128 threads, 8 elements each along D, two stages, no split. FlashInfer has a list of all pages where the task has a table,
// and a logarithm to base 2: a kernel before and one after convert. `page_size` is a uint_fastdiv, whose members for a
// power of two are the divisor, 0, 0, its logarithm and the divisor again.
//
// weft: sizes     B=2 HQ=4 HKV=2 SQ=1 D=64 PAGES=9 ENTRIES=4
// weft: define    ELEMENT = "half"
// weft: define    CAUSAL = 0
// weft: define    PAGE = 16
// weft: define    GROUP = HQ // HKV
// weft: define    TILE = max(1, 4 * (2 - GROUP))
// weft: define    DEPTH = 128 // (D // 8 * GROUP)
// weft: require   SQ == 1
// weft: require   D % 8 == 0
// weft: in        q : ELEMENT[B, HQ, SQ, D] = normal
// weft: in        k_cache, v_cache : ELEMENT[PAGES, PAGE, HKV, D] = normal
// weft: in        block_table : i32[B, ENTRIES] = uniform(0, PAGES)
// weft: in        seq_lens : i32[B] = uniform(49, 65)
// weft: workspace indices : i32[B, ENTRIES]
// weft: workspace indptr : i32[B + 1]
// weft: workspace last, request, tile : i32[B]
// weft: workspace chunk : i32[1]
// weft: workspace lse2 : f32[B, HQ]
// weft: out       o : ELEMENT[B, HQ, SQ, D]
// weft: out       lse : f32[B, HQ, SQ]
// weft: scalar    null : u64 = 0
// weft: scalar    no : u8 = 0
// weft: scalar    scale : f32 = 1 / sqrt(D)
// weft: option    -default-device
// weft: launch    list_pages(block_table, seq_lens, indices, indptr, last, request, tile, chunk, B, ENTRIES) grid(1) block(1)
// weft: launch    BatchDecodeWithPagedKVCacheKernel<PosEncodingMode::kNone, 2, TILE, 8, {D // 8}, GROUP, DEPTH, Variant, Params>({q, null, PAGE, 0, 0, ceil(log2(PAGE)), PAGE, HKV, D, B, PAGE * HKV * D, HKV * D, D, PAGE * HKV * D, HKV * D, D, k_cache, v_cache, indices, indptr, last, null, o, lse2, null, B, HQ, HQ * D, D, -1, 0.0, scale, 1.0, 1.0, request, tile, null, chunk, null, no})
// weft:           grid(B, HKV) block(D // 8, GROUP, DEPTH)
// weft:           shared(8 * TILE * GROUP * DEPTH * D + max(8 * TILE * 128, 8 * GROUP * DEPTH)) opt_in_shared
// weft: launch    natural(lse2, lse, B * HQ) grid(1) block(128)
#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;

static_assert(sizeof(ELEMENT) == 2, "ELEMENT is half or __nv_bfloat16");

using Params = BatchDecodeParams<ELEMENT, ELEMENT, ELEMENT, int32_t>;
using Variant = DefaultAttention</*custom mask*/ false, /*window*/ false, /*soft cap*/ false, /*alibi*/ false>;

__global__ void list_pages(const int* block_table, const int* seq_lens, int* indices, int* indptr, int* last, int* request,
                           int* tile, int* chunk, int B, int ENTRIES) {
    int total = 0;
    for (int b = 0; b < B; ++b) {
        const int pages = (seq_lens[b] + PAGE - 1) / PAGE;
        indptr[b] = total;
        for (int i = 0; i < pages; ++i) indices[total + i] = block_table[b * ENTRIES + i];
        last[b] = pages > 0 ? seq_lens[b] - (pages - 1) * PAGE : 0;
        total += pages;
        request[b] = b;
        tile[b] = 0;
    }
    indptr[B] = total;
    *chunk = 0;
}

__global__ void natural(const float* base2, float* lse, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) lse[i] = base2[i] * 0.693147180559945f;
}
