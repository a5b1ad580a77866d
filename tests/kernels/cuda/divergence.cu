// Threads that leave early and loops whose length differs per thread. Any block size, also not a multiple of 32.

// steps[i] = length of the Collatz sequence of i + 1; peak[i] = its largest member.
__global__ void collatz(int* __restrict__ steps, unsigned long long* __restrict__ peak, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long value = i + 1;
    unsigned long long largest = value;
    int count = 0;
    while (value != 1) {
        if (value % 2 == 0) {
            value /= 2;
        } else {
            value = 3 * value + 1;
            if (value > largest) largest = value;
        }
        ++count;
    }
    steps[i] = count;
    peak[i] = largest;
}

__device__ int first_not_below(const int* __restrict__ sorted, int length, int wanted) {
    int low = 0;
    int high = length;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (sorted[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// rank[i] = index of the first element of `sorted` not below wanted[i]; a negative query is answered with -1, and a
// switch gives each of four kinds of query its own path.
__global__ void ranks(const int* __restrict__ sorted, int length, const int* __restrict__ wanted,
                      int* __restrict__ rank, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        if (wanted[i] < 0) {
            rank[i] = -1;
            continue;
        }
        int answer = first_not_below(sorted, length, wanted[i]);
        switch (wanted[i] % 4) {
            case 0: break;
            case 1: answer = length - answer; break;
            case 2: answer = answer * answer; break;
            default:
                for (int j = 0; j < answer % 7; ++j) answer ^= j << 3;
        }
        rank[i] = answer;
    }
}

// Early exit before a barrier: threads past n leave, the others still meet at __syncthreads().
// Reverses each block's part of x through shared memory.
__global__ void reverse_blocks(const float* __restrict__ x, float* __restrict__ out, int n) {
    extern __shared__ float staged[];
    const int first = blockIdx.x * blockDim.x;
    const int length = min(static_cast<int>(blockDim.x), n - first);
    if (static_cast<int>(threadIdx.x) >= length) return;
    staged[threadIdx.x] = x[first + threadIdx.x];
    __syncthreads();
    out[first + threadIdx.x] = staged[length - 1 - threadIdx.x];
}
