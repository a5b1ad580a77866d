// Z04: the score tile is carved one table too early, so scores and the second dequantisation table share 512 bytes.
// weft: define  BUG = 1
// weft: in      x : f32[256] = normal
// weft: out     o : f32[512]
// weft: launch  dequantise(x, o) grid(2) block(128) shared(3072)
#include <cuda_fp16.h>
#include <weft.h>

extern "C" __global__ void dequantise(const float* x, float* o) {
    extern __shared__ __align__(128) unsigned char block[];
    half* table_k = WEFT_REGION(reinterpret_cast<half*>(block), 512, "table_k");
    half* table_v = WEFT_REGION(reinterpret_cast<half*>(block + 512), 512, "table_v");
    float* scores = WEFT_REGION(reinterpret_cast<float*>(block + (BUG ? 512 : 1024)), 1024, "scores");  // finds M105 cta=0,0,0 warp=0 lanes=0xffffffff says=512
    for (int i = threadIdx.x; i < 256; i += 128) {
        table_k[i] = __float2half(0.5f * i);
        table_v[i] = __float2half(0.25f * i);
        scores[i] = x[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 128)
        o[256 * blockIdx.x + i] = scores[255 - i] * __half2float(table_k[i]) + __half2float(table_v[i]);
}
