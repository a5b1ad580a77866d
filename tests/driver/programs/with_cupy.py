"""CuPy: raw, elementwise and reduction kernels, ufuncs, CUB and Thrust out of its wheel; `bug` plants one."""

import sys

import cupy
import numpy as np

SOURCE = r"""
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] += a * x[i];
}
"""
bug = sys.argv[1:] == ["bug"]
if bug:
    cupy.cuda.set_allocator(None)  # the memory pool rounds sizes up to 512 bytes: one element more is inside
axpy = cupy.RawKernel(SOURCE if bug else SOURCE.replace("<=", "<"), "axpy")
host = np.arange(1000, dtype=np.float32)
x, y = cupy.asarray(host), cupy.ones(1000, cupy.float32)
axpy((4,), (256,), (np.float32(3), x, y, np.int32(1000)))
assert np.array_equal(cupy.asnumpy(y), 3 * host + 1)

square = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared_difference")
assert np.array_equal(cupy.asnumpy(square(x, y)), np.square(host - (3 * host + 1)))
norm = cupy.ReductionKernel("float32 x", "float32 y", "x * x", "a + b", "y = a", "0", "sum_of_squares")
assert float(norm(cupy.arange(100, dtype=cupy.float32))) == sum(i * i for i in range(100))
assert np.allclose(cupy.asnumpy(cupy.sqrt(x) + cupy.sin(x)), np.sqrt(host) + np.sin(host), rtol=1e-5, atol=1e-6)

assert float(x.sum()) == 499500  # CUB
assert int(cupy.arange(5000, dtype=cupy.int32).sum()) == 12497500
mixed = np.random.default_rng(0).permutation(2000).astype(np.int32)
if sys.argv[1:] == ["sort"]:
    assert np.array_equal(cupy.asnumpy(cupy.sort(cupy.asarray(mixed))), np.arange(2000))  # Thrust
print("ok")
