// Two warpgroups start with 128 registers for each thread: one gives registers to the other.
// weft: out     y : i32[256]
// weft: launch  registers(y) grid(1) block(256)

__global__ void __launch_bounds__(256, 2) registers(int* y) {
    if (threadIdx.x < 128)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;" ::: "memory");
    __syncthreads();
    y[threadIdx.x] = threadIdx.x;
}
