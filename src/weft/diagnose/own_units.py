"""K and V of 8-bit kernels that multiply codes and apply the scale of a head later, in the units of the reference.

Σ q·code · scale is Σ q·k, and so is a sum of weighted codes of V: both orders are right.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from weft.attention.dtypes import Array
from weft.tasks.attention_problem import AttentionProblem

from .taps import Key, Taps

CARRIED_BY: Mapping[str, tuple[str, ...]] = {"k": ("k", "products"), "v": ("v", "u")}
"""Stages that lack the scale of K or V as long as it is not applied."""
CLOSE = 1e-4


def in_units_of_reference(taps: Taps, problem: AttentionProblem, expected: Mapping[Key, Array]) -> Taps:
    """Return the taps with the scales of K and V in the stages that lack them in every observed element."""
    if problem.scales is None:
        return taps
    found = dict(taps.taps)
    for name, of_heads in zip("kv", problem.scales[1:], strict=True):
        if not of_heads.any() or not _lacks_scale(taps, name, of_heads, expected):
            continue
        for (stage, tile), tap in taps.taps.items():
            if stage in CARRIED_BY[name]:
                heads = of_heads if stage in "kv" else np.repeat(of_heads, problem.workload.shape.group, axis=1)
                found[stage, tile] = replace(tap, values=tap.values * heads[:, :, None, None])
    return replace(taps, taps=found)


def _lacks_scale(taps: Taps, name: str, of_heads: Array, expected: Mapping[Key, Array]) -> bool:
    """Whether all observed elements of K or V are those of the reference divided by the scale of their head."""
    seen = False
    for (stage, tile), tap in taps.taps.items():
        if stage == name:
            wanted, scaled = expected[stage, tile].astype(np.float64), tap.values * of_heads[:, :, None, None]
            near = np.abs(scaled - wanted) <= CLOSE * np.abs(wanted)  # a NaN is not
            if (~near & tap.observed).any():
                return False
            seen |= bool((tap.observed & (wanted != 0)).any())
    return seen
