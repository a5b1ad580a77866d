"""The arithmetic of FP8 tensor cores in NumPy: E4M3 with an f32 accumulator, by Ada's mma or by Hopper's wgmma.

An instruction has a k of 32: two fused steps of 16 products each on Ada (sm_89), one step of 32 on Hopper. A step
aligns the accumulator and its exact products to the largest exponent E among them, truncates each toward zero at
2^(E - 13), adds exactly, and keeps 13 fraction bits of the sum, again truncated. A product's exponent is the sum of its
factors', so its significand is in [1, 4); a denormal keeps its format's smallest exponent. tests/attention compare this
with the virtual GPU's own definition bit for bit.
"""

import numpy as np

from .dtypes import Array
from .errors import ContractError

STEP = 16
"""The number of products in a fused step of Ada."""
STEPS = (STEP, 32)
"""That of Ada and that of Hopper's wgmma."""
FRACTION_BITS = 13
_DROPPED = 23 - FRACTION_BITS
_LEAST_EXPONENT = -6
_SMALLEST = np.float32(2.0**-100)
"""The power used where all values are zero: every sum of products is a multiple of 2^-31."""
_AT_ONCE = 1 << 16
"""Elements of the result computed together, so that they stay in the cache."""


def fp8_matmul(a: Array, b: Array, c: Array | None = None, *, step: int = STEP) -> Array:
    """Return c + a·b in float32, for E4M3 values in a (n, m, k) and b (n, k, columns), k in increasing steps."""
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ContractError(f"cannot multiply {a.shape} by {b.shape}")
    count, rows, inner = a.shape
    columns = b.shape[2]
    result = np.zeros((count, rows, columns), np.float32) if c is None else c.astype(np.float32)
    powers_a, powers_b = _power(a), _power(b)
    rows_at_once = max(1, min(rows, _AT_ONCE // columns))
    heads_at_once = max(1, _AT_ONCE // (columns * rows_at_once))
    for head in range(0, count, heads_at_once):
        for row in range(0, rows, rows_at_once):
            left, here = slice(head, head + heads_at_once), slice(row, row + rows_at_once)
            part = result[left, here]
            for first in range(0, inner, step):
                k = slice(first, first + step)
                part = _fused_step((a[left, here, k], powers_a[left, here, k]), (b[left, k], powers_b[left, k]), part)
            result[left, here] = part
    return result


def _power(values: Array) -> Array:
    """Return 2^exponent of each value; 0 for a zero, which is never the largest."""
    exponent = np.maximum(np.frexp(values)[1] - 1, _LEAST_EXPONENT)
    return np.where(values == 0, np.float32(0), np.ldexp(np.float32(1), exponent))


def _fused_step(a: tuple[Array, Array], b: tuple[Array, Array], c: Array) -> Array:
    """Return one step's result; a (n, m, s) and b (n, s, columns) are values and powers. Only truncations round."""
    (values_a, powers_a), (values_b, powers_b) = a, b
    product = np.empty_like(c)
    largest = np.ldexp(np.float32(1), np.frexp(c)[1] - 1)
    largest[c == 0] = _SMALLEST
    for i in range(values_a.shape[2]):
        np.multiply(powers_a[:, :, i, None], powers_b[:, i, None, :], out=product)
        np.maximum(largest, product, out=largest)
    to_units = np.float32(2.0**FRACTION_BITS) / largest
    total = np.trunc(c * to_units)
    for i in range(values_a.shape[2]):
        np.multiply(values_a[:, :, i, None], values_b[:, i, None, :], out=product)
        np.multiply(product, to_units, out=product)
        np.trunc(product, out=product)
        np.add(total, product, out=total)
    kept = (total.view(np.int32) >> _DROPPED << _DROPPED).view(np.float32)
    return np.asarray(kept / to_units + np.float32(0))  # a sum of zero is +0
