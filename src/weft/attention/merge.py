"""The merge of partial rows: one function, used wherever keys are split."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .dtypes import Array
from .errors import ContractError
from .reference import Attended


class Partial(NamedTuple):
    """The result of one split of the keys: Σ P·V not yet divided by l, the running maximum m, and l = Σ P.

    o is (…, d), m and l are (…). A split without keys is (0, -inf, 0).
    """

    o: Array
    m: Array
    l: Array


def sink_partials(sinks: Array | None, like: Partial, *, base: float = math.e) -> tuple[Partial, ...]:
    """Return sinks (hq,) as one more split of the keys, (0, sink, 1) in each row of a head; none without sinks."""
    if sinks is None:
        return ()
    m = np.broadcast_to(sinks[:, None] / math.log(base), like.m.shape).astype(like.m.dtype)
    return (Partial(np.zeros_like(like.o), m, np.ones_like(like.l)),)


def merge(partials: Sequence[Partial], *, base: float = math.e) -> Attended:
    """Return O and natural LSE of all partials, in their own precision.

    M = max m; where M = -inf the result is (0, -inf), else each partial has the weight base^(m - M), so -inf - -inf is
    never computed. With `base` 2 the partials' m are exponents of 2. NaN in a partial stays NaN.
    """
    if not partials:
        raise ContractError("nothing to merge: give at least one partial, an empty split is (0, -inf, 0)")
    o, m, l = (np.stack(parts) for parts in zip(*partials, strict=True))
    if m.shape != l.shape or o.shape[:-1] != m.shape:
        raise ContractError(f"partials do not fit: o {o.shape[1:]}, m {m.shape[1:]}, l {l.shape[1:]}")
    top = m.max(axis=0)
    empty = np.isneginf(top)
    weight = (np.exp2 if base == 2 else np.exp)(m - np.where(empty, 0, top))
    total = (weight * l).sum(axis=0)
    divisor = np.where(empty, 1, total)
    merged = (weight[..., None] * o).sum(axis=0) / divisor[..., None]
    log_base = o.dtype.type(math.log(base))
    lse = np.where(empty, -np.inf, top * log_base + np.log(divisor)).astype(o.dtype)
    return Attended(merged, lse)
