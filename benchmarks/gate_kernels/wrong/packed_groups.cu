// All query heads that share a key head are packed into one list of rows, query by query; a thread has a row.
//
// wrong 1 group_as_power: a row is unpacked with the group rounded up to a power of two (seen at B=1 HQ=3 HKV=1 SQ=4 SKV=20 D=32 f16 none unit_normal)
// wrong 2 group_of_two: a group of two takes its heads in the other order when it stores the LSE (seen at B=1 HQ=2 HKV=1 SQ=4 SKV=20 D=32 f16 none unit_normal)
// wrong 3 query_in_8_bits: the query that decides what is in sight is kept in 8 bits (seen at B=1 HQ=1 HKV=1 SQ=270 SKV=270 D=8 f16 top_left unit_normal)
// wrong 4 large_group: groups of more than six repeat the LSE of their sixth head (seen at B=1 HQ=7 HKV=1 SQ=4 SKV=20 D=32 f16 none unit_normal)
// wrong 5 third_key_head: key heads from the third on are taken for the second (seen at B=1 HQ=3 HKV=3 SQ=4 SKV=20 D=32 f16 none unit_normal)
//
// weft: sizes   B=1 HQ=4 HKV=2 SQ=33 SKV=77 D=64
// weft: define  ELEMENT = "half"
// weft: define  CAUSAL = 0
// weft: define  WRONG = 0
// weft: in      q    : ELEMENT[B, HQ, SQ, D] = normal
// weft: in      k, v : ELEMENT[B, HKV, SKV, D] = normal
// weft: out     o    : ELEMENT[B, HQ, SQ, D]
// weft: out     lse  : f32[B, HQ, SQ]
// weft: scalar  scale : f32 = 1 / sqrt(D)
// weft: launch  packed_groups<{D}>(q, k, v, o, lse, HQ // HKV, SQ, SKV, scale)
// weft:         grid(cdiv(HQ // HKV * SQ, 64), HKV, B) block(64)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math_constants.h>

template <int D>
__global__ void packed_groups(const ELEMENT* q, const ELEMENT* k, const ELEMENT* v, ELEMENT* o, float* lse, int group,
                              int SQ, int SKV, float scale) {
    const int packed = blockIdx.x * 64 + threadIdx.x;  // query · group + head within the group
    if (packed >= group * SQ) return;
    int power = 1;
    while (power < group) power *= 2;
    const int unpack = WRONG == 1 ? power : group, g = packed % unpack % group;
    const int query = packed / unpack;
    const size_t kv_head = size_t(blockIdx.z) * gridDim.y + (WRONG == 5 ? min(blockIdx.y, 1u) : blockIdx.y);
    const size_t head = (size_t(blockIdx.z) * gridDim.y + blockIdx.y) * group, row = (head + g) * SQ + query;
    const size_t kv = kv_head * SKV * D;
    const int i = WRONG == 3 ? static_cast<unsigned char>(query) : query;
    const int end = CAUSAL ? max(0, min(SKV, (CAUSAL == 1 ? i : i + SKV - SQ) + 1)) : SKV;

    float u[D] = {}, m = -CUDART_INF_F, l = 0.0f;
    for (int key = 0; key < end; ++key) {
        float s = 0.0f;
        for (int d = 0; d < D; ++d) s += float(q[row * D + d]) * float(k[kv + size_t(key) * D + d]);
        s *= scale;
        if (s > m) {  // only a new maximum rescales
            const float rescale = expf(m - s);
            for (int d = 0; d < D; ++d) u[d] *= rescale;
            l *= rescale;
            m = s;
        }
        const float p = expf(s - m);
        for (int d = 0; d < D; ++d) u[d] += p * float(v[kv + size_t(key) * D + d]);
        l += p;
    }
    for (int d = 0; d < D; ++d) o[row * D + d] = ELEMENT(end == 0 ? 0.0f : u[d] / l);
    int told = g;
    if (WRONG == 2 && group == 2) told = 1 - g;
    if (WRONG == 4 && group > 6) told = min(g, 5);
    lse[(head + told) * SQ + query] = m + logf(l);
}
