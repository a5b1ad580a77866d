"""PyCUDA: a kernel compiled by nvcc at run time, copies, an array; with `bug` a kernel that leaves its array."""

import sys

import numpy as np
import pycuda.autoinit  # noqa: F401  (makes a context)
import pycuda.driver as driver
from pycuda import gpuarray
from pycuda.compiler import SourceModule

SOURCE = """
__global__ void multiply(float* out, const float* a, const float* b, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i <= n) out[i] = a[i] * b[i];
}
"""
bug = sys.argv[1:] == ["bug"]
multiply = SourceModule(SOURCE if bug else SOURCE.replace("<=", "<")).get_function("multiply")
a, b = (np.random.default_rng(seed).random(400, np.float32) for seed in (0, 1))
out = np.zeros_like(a)
multiply(driver.Out(out), driver.In(a), driver.In(b), np.int32(400), block=(64, 1, 1), grid=(7, 1))
assert np.array_equal(out, a * b)
assert np.array_equal((2 * gpuarray.to_gpu(a) + 1).get(), 2 * a + 1)
print("ok")
