// Atomics on shared and global memory.

constexpr int BINS = 256;

// counts[b] += number of bytes equal to b. A CTA counts in shared memory and adds its bins to the global ones once.
__global__ void histogram(const unsigned char* __restrict__ data, unsigned* __restrict__ counts, int n) {
    __shared__ unsigned local[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) local[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&local[data[i]], 1u);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x) {
        if (local[bin] != 0) atomicAdd(&counts[bin], local[bin]);
    }
}

// There is no atomicMax for float: compare and swap until the stored value is large enough.
__device__ void atomic_max(float* address, float value) {
    int* const bits = reinterpret_cast<int*>(address);
    int seen = *static_cast<volatile int*>(bits);
    while (__int_as_float(seen) < value) {
        const int before = atomicCAS(bits, seen, __float_as_int(value));
        if (before == seen) break;
        seen = before;
    }
}

struct Statistics {
    float sum;
    float maximum;
    int smallest_index_of_negative;
    unsigned long long nonzero;
    unsigned parity;
};

__global__ void statistics(const float* __restrict__ x, Statistics* __restrict__ result, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&result->sum, x[i]);
    atomic_max(&result->maximum, x[i]);
    if (x[i] < 0.0f) atomicMin(&result->smallest_index_of_negative, i);
    if (x[i] != 0.0f) atomicAdd(&result->nonzero, 1ull);
    atomicXor(&result->parity, static_cast<unsigned>(__float_as_int(x[i])));
}

// Compaction: the positions come from an atomic ticket taken once per warp. The order of the output is free.
__global__ void keep_positive(const float* __restrict__ x, float* __restrict__ kept, int* __restrict__ count, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool keep = i < n && x[i] > 0.0f;
    const unsigned voters = __ballot_sync(0xffffffffu, keep);
    if (!keep) return;
    const int leader = __ffs(voters) - 1;
    const int lane = threadIdx.x % 32;
    int first = 0;
    if (lane == leader) first = atomicAdd(count, __popc(voters));
    first = __shfl_sync(voters, first, leader);
    kept[first + __popc(voters & ((1u << lane) - 1))] = x[i];
}
