"""The expected error of quantised inputs: attention on inputs moved at random within a quantiser's bounds.

Rounding moves each input by up to half a step. The effect on O depends on the inputs: it averages out over many keys
and is large where a row depends on one of two keys. The error is sampled, instead of a formula for each regime.
"""

from collections.abc import Callable

import numpy as np

from .dtypes import Array
from .error_report import block_rms
from .quantise import Quantiser
from .reference import Attended

Attend = Callable[[Array, Array, Array], Attended]
"""q, k and v → their attention."""
DRAWS = 3
MANY_DRAWS = 64
"""Where a row depends on which of two keys wins, its error is large and rare, and a few draws may miss it."""


def noise_size(
    quantiser: Quantiser,
    original: tuple[Array, Array, Array],
    scales: tuple[Array, Array, Array],
    exact: Attended,
    *,
    attend: Attend,
    draws: int = DRAWS,
    seed: int = 0,
) -> Array:
    """Return the RMS of the error of O per head and block of 64 rows (b, hq, blocks): the largest of some draws.

    `exact` is `attend` of the `original` q, k and v, whose scales (b, h) are those of entire heads; 0: no codes.
    """
    rng = np.random.default_rng(seed)
    sizes = []
    for _ in range(draws):
        q, k, v = (
            x.astype(np.float64) + (rng.uniform(-1, 1, x.shape) * quantiser.bound(x, scale) if scale.any() else 0.0)
            for x, scale in zip(original, scales, strict=True)
        )
        sizes.append(block_rms(attend(q, k, v).o - exact.o))
    return np.asarray(np.max(sizes, axis=0))
