"""Stores of one element of a Triton tensor by all threads that hold it: no race, though the bits may differ.

A Triton tensor with fewer elements than the CTA has threads is held several times, and the compiler lets all threads
that hold an element store it to the same place of shared memory. The values are the same except for contraction: for
`tl.sum(x * w)` the compiler generates

    mul.f32        %p, %x, %w;
    shfl.sync.bfly %q, %p, 16, …;       the other lane's product, rounded
    fma.rn.f32     %s, %x, %w, %q;      this lane's product, not rounded
so a lane and its partner hold sums that differ by a rounding error, on hardware too. Whichever is kept is a right sum.
In Triton only the compiler uses shared memory: one instruction stores two elements to one place only if a barrier is
missing between two iterations of a loop. Then a thread stores there twice between two barriers, and the reads in
between conflict as well.
"""

import numpy as np
import numpy.typing as npt

from weft.core.records import inlining_chain
from weft.vm.ir import LANES
from weft.vm.memory import GLOBAL_BASE

from .conflict import Conflict
from .events import What
from .order import Order
from .semantics import Semantics


def are_replicas(conflict: Conflict, log: npt.NDArray[np.void], order: Order, semantics: Semantics) -> bool:
    """Whether the two accesses of a conflict in one CTA store the same element of a Triton tensor."""
    site = conflict.later.site
    if conflict.code != "R101" or conflict.earlier.site != site or conflict.address >= GLOBAL_BASE:
        return False
    ins = semantics.at(site)
    places = list(inlining_chain(ins.place if ins else None))
    if not places or not places[-1].file.endswith(".py"):
        return False
    here = np.flatnonzero((log["site"] == site) & (log["what"] == What.STORE))
    index, lane = np.nonzero((log["lanes"][here][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1)
    record = here[index]
    stores = np.stack(
        [
            order.phase_of[record].astype(np.uint64),
            log["warp"][record].astype(np.uint64) * LANES + lane.astype(np.uint64),
            log["address"][record, lane],
        ]
    )
    return bool(np.unique(stores, axis=1).shape[1] == len(record))
