"""The expected total error of all-FP8 attention: every rounding of the recipe is replaced by a random one.

Inputs move within their quantisers' bounds, scores and sums by the average truncation in the tensor core (half a unit
of every term), weights by half a step of E4M3. The effect on O depends on the inputs, so there is no formula.
"""

import numpy as np

from .dtypes import Array
from .e4m3 import E4M3PerBlock, E4M3PerChannel, SmoothedE4M3PerBlock
from .error_report import block_rms
from .fp8_recipe import FLUSH_KEYS, P_SCALE, RecipeRun
from .quantisation_noise import DRAWS
from .reference import Attended

P_DENORMAL = 2.0**-10 / float(P_SCALE)
"""Half a step of E4M3's denormals, as a weight."""


def recipe_noise(run: RecipeRun, exact: Attended, *, draws: int = DRAWS, seed: int = 0) -> Array:
    """Return the RMS of the error of O per head and block of 64 rows (b, hq, blocks): the largest of some draws.

    A recipe that never flushes gets the size of one that does: it must not be worse.
    """
    rng = np.random.default_rng(seed)
    bounds = (
        E4M3PerBlock(run.recipe.block_m).bound(run.q, run.q_coded.scale),
        SmoothedE4M3PerBlock(run.recipe.block_n).bound(run.k, run.k_coded.scale, run.k_coded.mean),
        E4M3PerChannel().bound(run.v, run.v_coded.scale),
    )
    centred = run.k.astype(np.float64) - run.k_coded.mean[:, :, None]
    inputs = (run.q.astype(np.float64), centred, run.v.astype(np.float64))
    sizes = []
    for _ in range(draws):
        q, k, v = (_moved(x, by, rng) for x, by in zip(inputs, bounds, strict=True))
        sizes.append(block_rms(_attention(run, q, k, v, rng) - exact.o))
    return np.asarray(np.max(sizes, axis=0))


def _moved(x: Array, by: Array, rng: np.random.Generator) -> Array:
    """Return x moved at random within the bound; a value that becomes zero moves by its full size."""
    return np.where(by >= np.abs(x), 0.0, x + rng.uniform(-1, 1, x.shape) * by)


def _attention(run: RecipeRun, q: Array, k: Array, v: Array, rng: np.random.Generator) -> Array:
    """Return O in float64 of keys without their mean, with the roundings after quantisation."""
    shape, recipe, lost = run.shape, run.recipe, run.recipe.lost_per_step / 2
    o = np.zeros(shape.q)
    largest_q, largest_k = np.abs(q).max(axis=3), np.abs(k).max(axis=3)
    for batch in range(shape.b):
        for head in range(shape.hq):
            at, of = (batch, head), (batch, head // shape.group)
            s = q[at] @ k[of].T
            term = np.maximum(largest_q[at][:, None] * largest_k[of], np.abs(s))
            s = (s + rng.uniform(-1, 1, s.shape) * lost * -(-shape.d // recipe.products) * term) * run.scale
            s = np.where(run.mask, s, -np.inf)
            m = s.max(axis=1, keepdims=True)
            p = np.exp(s - np.where(np.isneginf(m), 0, m))
            by = np.minimum(p, np.maximum(p * 2.0**-4, P_DENORMAL))
            o[at] = _sum(p + rng.uniform(-1, 1, p.shape) * by, v[of], lost * recipe.steps_per_flush, rng)
            l = p.sum(axis=1, keepdims=True)
            o[at] /= np.where(l == 0, 1, l)
    return o


def _sum(p: Array, v: Array, lost: float, rng: np.random.Generator) -> Array:
    """Return P·V, where each flush loses a share of its largest term."""
    total = np.zeros((p.shape[0], v.shape[1]))
    for first in range(0, p.shape[1], FLUSH_KEYS):
        keys = slice(first, first + FLUSH_KEYS)
        part = p[:, keys] @ v[keys]
        term = np.maximum(p[:, keys].max(axis=1)[:, None] * np.abs(v[keys]).max(axis=0), np.abs(part))
        total += part - rng.uniform(-1, 1, part.shape) * lost * term
    return total
