"""The bias gate: rounding errors of a right output cancel over its elements, those of a truncated output do not.

An output truncated toward zero is within one ulp of every element, so no limit per element detects it; its mean error
is half an ulp. Errors are measured in ulps of the element, once away from zero and once signed (truncated to -inf).
"""

from collections.abc import Sequence

import numpy as np

from .dtypes import Array, rounded, smallest_normal, ulp
from .error_report import BLOCK_ROWS, Block, block_mean, difference
from .gates import GateResult

FEWEST_ELEMENTS, FEWEST_ROWS = 512, 32
"""With fewer, the spread of the mean is not known well enough for a comparison."""
SIGMAS = 7.0
"""Standard errors that the mean may be off by: Student's t of 31 rows exceeds it once in 10^7 outputs."""
LAST_ROUNDINGS = 4 * 2.0**-24
"""Scale, exponential, division and product round in float32, and may always round to the same side."""
SHARED_ROUNDING = 2.0**-25
"""Per key: sums of equal terms round to the same side, by half of 2^-24 since partial sums are half of the total."""
MOST_COMMON = 0.125
"""In ulps: where errors in float32 may move all elements further to one side, half an ulp is too little to detect."""
EXACT_WITHIN = 2.0**-10
"""In ulps: an element this close to a value of the type is not rounded, and shows nothing about rounding."""


def bias_gate(
    out: Array,
    expected: Sequence[Array],
    dtype: str,
    *,
    keys: Array,
    noise: Array | float = 0.0,
    common: Array | float = 0.0,
) -> GateResult | None:
    """Gate 4: check the signed mean error over all elements, in ulps. None where too few elements are rounded.

    `expected` are values (b, h, s, d) that a right kernel may have before it rounds to the output type, the first of
    them wide; `keys` (s,) or (b, 1, s) is how many keys each row sees. The mean must be within 7 standard errors of
    that of some expected value, rounded or not: a kernel without noise rounds as they do, and with more noise than an
    ulp the position between two values of the type has no effect. The standard error is computed from the errors
    themselves, with rows and columns as clusters: a weight rounded in P moves an entire row, a rounded element of V a
    column. `noise` is how far float32 sums may move each element: where that is as much as the element itself, as in a
    difference of equal sums, the element shows nothing about rounding and is left out. `common` is the part of it that
    may move all elements to the same side.
    """
    wide = expected[0].astype(np.float64, copy=False)
    step = ulp(wide, dtype)
    near = [rounded(each.astype(np.float64, copy=False), dtype) for each in expected]
    size = np.abs(wide)
    judged = (np.abs(wide - near[0]) > EXACT_WITHIN * step) & (size >= smallest_normal(dtype))
    judged &= (noise < size) & (common <= MOST_COMMON * step)
    if judged.sum() < FEWEST_ELEMENTS or judged.any(axis=3).sum() < FEWEST_ROWS:
        return None
    step = np.where(judged, step, 1.0)
    shared = ((LAST_ROUNDINGS + SHARED_ROUNDING * keys[..., None]) * np.abs(wide) + common) / step
    # Where O is small compared with V, its ulp is small compared with the noise: such elements are clipped.
    most = 2 + 2 * shared
    errors = [_in_steps(difference(out, each), step, most, judged) for each in (*expected, *near)]
    allowed = float(shared[judged].mean())
    found = [_held(errors, judged, sign, allowed) for sign in (np.sign(wide), np.ones_like(wide))]
    return max(found, key=lambda result: (not result.passed, result.ratio))


def _in_steps(error: Array, step: Array, most: Array, judged: Array) -> Array:
    """Return errors in steps, clipped; 0 where an element is not judged. The array is changed: it may be large."""
    error /= step
    np.clip(error, -most, most, out=error)
    np.copyto(error, 0.0, where=~judged)
    return error


def _held(errors: Sequence[Array], judged: Array, sign: Array, allowed: float) -> GateResult:
    signed = [error * sign for error in errors]
    means, spreads = zip(*(_mean(each, judged) for each in signed), strict=True)
    mean = max(0.0, min(means), -max(means))
    limit = SIGMAS * max(spreads) + allowed
    blocks = np.abs(block_mean(signed[0]))
    batch, head, block = (int(i) for i in np.unravel_index(int(blocks.argmax()), blocks.shape))
    return GateResult("bias", bool(mean <= limit), Block(batch, head, block * BLOCK_ROWS), mean, limit)


def _mean(error: Array, judged: Array) -> tuple[float, float]:
    """Return the mean of the judged elements, and its standard error with rows and columns as clusters."""
    count = int(judged.sum())
    mean = float(error.sum() / count)
    apart = error - mean
    np.copyto(apart, 0.0, where=~judged)
    alone = float((apart**2).sum())
    rows, columns = (float((apart.sum(axis=axes) ** 2).sum()) for axes in (3, (1, 2)))
    uniform = count / 12  # the minimum that rounding to the type causes
    return mean, float(np.sqrt(max(rows + columns - alone, alone, uniform))) / count
