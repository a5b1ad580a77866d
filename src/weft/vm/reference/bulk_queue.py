"""Bulk copies between issue and delivery: carried out as late as the program allows.

A load is carried out when a thread tests the mbarrier that counts its bytes, one after the other until the phase that
the thread waits for is over. A store is carried out when its thread waits for its group, or when the CTA ends.
"""

from typing import Any

import ml_dtypes
import numpy as np

from .machine import BulkCopy, Cta, Reduction
from .memory import carry_out
from .sync import updated
from .warp import dtype_of

_DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def next_load(cta: Cta, mbarrier: int) -> BulkCopy | None:
    """Return the oldest load whose bytes an mbarrier counts and that is not carried out; None if there is none."""
    return next((copy for copy in cta.bulk if copy.mbarrier == mbarrier), None)


def deliver(copy: BulkCopy) -> None:
    """Move the bytes of a copy now."""
    cta = copy.cta
    cta.bulk = [other for other in cta.bulk if other is not copy]
    cta.fruitless = 0
    for piece in copy.pieces:
        carry_out(copy.warp, piece)
    if copy.reduction is not None:
        _reduce(copy, copy.reduction)


def finish(cta: Cta) -> None:
    """End the CTA: its stores are carried out, a load that no thread waited for is reported."""
    for copy in list(cta.bulk):
        if copy.mbarrier is None:
            deliver(copy)
        else:
            lanes = np.arange(32) == copy.lane
            copy.warp.report("S309", "the CTA ends, and no thread waited for this copy", copy.call, lanes)
    cta.bulk = []


def _reduce(copy: BulkCopy, how: Reduction) -> None:
    far, near = copy.warp.grid.global_region.data, copy.cta.shared.data
    dtype = np.dtype(_DTYPES.get(how.type) or dtype_of(how.type))
    size = dtype.itemsize
    for to, source in how.elements:
        cell = far[to : to + size]
        found, given = cell.copy().view(dtype), near[source : source + size].copy().view(dtype)
        new = updated(how.op, found, given, given, flush=how.type == "f32")
        cell[:] = new.astype(dtype).view(np.uint8)
