// Two patterns of bugs that `weft exec` found in public programs (docs/found_bugs.md), each in a few lines.
#include "check.cuh"

// A tree over 32 values in a block of 8 threads with shared memory for 16: x[tid + 16] is behind its end.
__global__ void small_block(float *sum) {
    extern __shared__ float x[];
    unsigned t = threadIdx.x;
    x[t] = 1.0f;
    x[t + blockDim.x] = 0.0f;
    __syncthreads();
    for (unsigned step = 16; step > 0; step /= 2) {
        if (t < step) x[t] += x[t + step];  // the first bug
        __syncthreads();
    }
    if (t == 0) *sum = x[0];
}

// Each lane asks for the votes of the lanes below it, and is not in the mask itself.
__global__ void votes_below(unsigned *count) {
    unsigned lane = threadIdx.x, below = (1u << lane) - 1;
    count[lane] = __popc(__ballot_sync(below, lane % 2 == 0));  // the second bug
}

int main() {
    float *sum;
    unsigned *count;
    OK(cudaMalloc(&sum, sizeof *sum));
    OK(cudaMalloc(&count, 32 * sizeof *count));
    small_block<<<1, 8, 16 * sizeof(float)>>>(sum);
    votes_below<<<1, 32>>>(count);
    OK(cudaDeviceSynchronize());
}
