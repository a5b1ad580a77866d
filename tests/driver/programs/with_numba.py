"""numba-cuda: a kernel, shared memory, atomics, a debug kernel; with the argument `bug` one that leaves its array."""

import sys
import warnings

import numpy as np
from numba import cuda, float32

warnings.simplefilter("ignore")


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def block_sums(x, sums):
    tile = cuda.shared.array(64, float32)
    lane = cuda.threadIdx.x
    tile[lane] = x[cuda.grid(1)]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if lane < step:
            tile[lane] += tile[lane + step]
        cuda.syncthreads()
        step //= 2
    if lane == 0:
        cuda.atomic.add(sums, 0, tile[0])


@cuda.jit(debug=True, opt=False)
def square(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * x[i]


@cuda.jit(lineinfo=True)
def shift(x, y):
    i = cuda.grid(1)
    y[i] = x[i + 1]  # planted: one element behind the end


x = np.arange(256, dtype=np.float32)
if sys.argv[1:] == ["bug"]:
    shift[4, 64](x, cuda.device_array_like(x))
    cuda.synchronize()
y = np.ones_like(x)
axpy[4, 64](np.float32(3), x, y)
assert np.array_equal(y, 3 * x + 1)
sums = np.zeros(1, np.float32)
block_sums[4, 64](x, sums)
assert sums[0] == x.sum()
square[4, 64](x, y)
assert np.array_equal(y, x * x)
print("ok")
