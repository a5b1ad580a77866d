// CTAs add to one row in turn, each waiting for the one before: a chain of acquire and release, or no order at all.
// weft: define  BUG = 1
// weft: in      x : f32[4, 32] = normal
// weft: inout   turn : i32[1] = zeros
// weft: inout   o : f32[32] = zeros
// weft: launch  kernel(x, turn, o) grid(4) block(32)

extern "C" __global__ void kernel(const float* x, int* turn, float* o) {
    const int t = threadIdx.x;
    int now = 0;
    do {
        if (BUG) asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
        else asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
    } while (now != blockIdx.x);
    o[t] += x[32 * blockIdx.x + t];  // finds R102 warp=0 lanes=0xffffffff
    __syncwarp();
    if (t == 0) {
        if (BUG) asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(now + 1) : "memory");
        else asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(now + 1) : "memory");
    }
}
