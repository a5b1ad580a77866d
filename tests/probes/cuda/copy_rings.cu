// Rings of copies that arrive at mbarriers. Right unless one of the wrong ways is defined:
// NO_ARRIVAL (of one copy), WRONG_PARITY, NO_WAIT, NO_EMPTY (no wait until a stage is free), OWN_READ (the producer
// reads its copy without waiting), PLAIN_STORE (a store is published by an arrival that covers copies only).
constexpr int STAGES = 2, WIDTH = 32;
using Word = unsigned long long;

__device__ unsigned at(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void setup(Word* bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(at(bar)), "r"(count) : "memory");
}
__device__ void arrive(Word* bar) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(at(bar)) : "memory");
}
__device__ void wait(Word* bar, int parity) {
    int over;
    do asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                    : "=r"(over) : "r"(at(bar)), "r"(parity) : "memory");
    while (!over);
}
__device__ void copy(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at(to)), "l"(from) : "memory");
}
template <bool NOINC> __device__ void arrive_by_copies(Word* bar) {
    if (NOINC) asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at(bar)) : "memory");
    else asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" :: "r"(at(bar)) : "memory");
}

// Warp 0 copies rows, warps 1 and 2 add them: y[t] = sum over rows of x[row][31 - t].
template <bool NOINC> __global__ void ring(const float* x, float* y, int rows) {
    __shared__ float stage[STAGES][WIDTH], extra[WIDTH];
    __shared__ Word full[STAGES], empty[STAGES];
    const int t = threadIdx.x, lane = t % 32;
    if (t == 0)
        for (int s = 0; s < STAGES; ++s) setup(&full[s], NOINC ? 32 : 1), setup(&empty[s], 64);
    __syncthreads();
    float sum = 0;
    if (t < 32) {
        for (int row = 0; row < rows; ++row) {
            const int s = row % STAGES, round = row / STAGES;
#ifndef NO_EMPTY
            wait(&empty[s], (round + 1) % 2);
#endif
#ifdef NO_ARRIVAL
            if (t != 5)
#endif
                copy(&stage[s][t], x + row * WIDTH + t);
#ifdef PLAIN_STORE
            extra[t] = sum;
#endif
            arrive_by_copies<NOINC>(&full[s]);
#ifdef NO_ARRIVAL
            if (t == 5) copy(&stage[s][t], x + row * WIDTH + t);
#endif
            if (!NOINC) {
                __syncwarp();
                if (t == 0) arrive(&full[s]);
            }
        }
#ifdef OWN_READ
        arrive(&empty[0]);  // gives way to the others
        for (int i = 0; i < 100; ++i) __nanosleep(1);
        sum = stage[(rows - 1) % STAGES][t];
        if (sum == 1234) y[t] = 0;
#endif
        return;
    }
    for (int row = 0; row < rows; ++row) {
        const int s = row % STAGES, round = row / STAGES;
#ifdef WRONG_PARITY
        wait(&full[s], 0);
#else
#ifdef NO_WAIT
        if (row + STAGES < rows)
#endif
            wait(&full[s], round % 2);
#endif
        sum += stage[s][31 - lane];
#ifdef PLAIN_STORE
        sum += extra[31 - lane];
#endif
        if (row + STAGES < rows) arrive(&empty[s]);
    }
    y[t - 32] = sum;
}

// A last round by wait_all: whoever waits for his copies, and then meets the others, needs no mbarrier.
__global__ void drained(const float* x, float* y, int rows) {
    __shared__ float stage[96];
    __shared__ Word bar;
    const int t = threadIdx.x;
    if (t == 0) setup(&bar, 96);
    __syncthreads();
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
        copy(&stage[t], x + row * WIDTH + t % 32);
        arrive_by_copies<true>(&bar);
        if (t == 64) wait(&bar, row % 2);  // which brings the copies of all, though the others do not know it
#ifndef NO_WAIT
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
        sum += stage[t];
        __syncthreads();
        sum += stage[95 - t];
        __syncthreads();
    }
    if (t < 64) y[t] = sum;
}

// Warp 0 copies a row, warp 1 waits for it and writes to where it came from.
__global__ void overwritten(float* x, float* y, int rows) {
    __shared__ float stage[WIDTH];
    __shared__ Word full;
    const int t = threadIdx.x;
    if (t == 0) setup(&full, 32);
    __syncthreads();
    if (t < 32) {
        copy(&stage[t], x + t);
        arrive_by_copies<true>(&full);
    } else if (t < 64) {
#ifndef NO_WAIT
        wait(&full, 0);
#endif
        x[63 - t] = -1;
    }
    __syncthreads();
    if (t >= 64) wait(&full, 0);
    if (t >= 64) y[t - 64] = stage[t - 64];
}
