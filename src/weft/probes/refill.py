"""Whether what a launch found in uninitialised shared and local memory decides anything: try it with other contents.

A value that is never stored to global memory and decides no branch leaves the same bits, and every block runs as often,
whatever it was. This sees all CTAs at once and costs a few plain runs; it cannot say which read it was that mattered,
nor see a comparison with a value that none of the fillings has. `taint.py` can, where there is time to follow.
"""

import numpy as np
import numpy.typing as npt

from weft.vm.context import (
    WARP_LOCAL,
    WORKER_LOCAL_BYTES,
    WORKER_PROBE,
    WORKER_SHARED,
    WORKER_SHARED_BYTES,
    WORKER_WARPS,
)
from weft.vm.ir import Builder, Value, const
from weft.vm.runtime.shape import get
from weft.vm.runtime.watch import Instrumentation, Scene

FILLINGS = (0xFF, 0x00, 0x01, 0x5A, 0xDA)
"""Bytes: NaN, zero, true, a large number and its negative, in every width of float and integer."""


class Refill(Instrumentation):
    """Fills shared and local memory with a byte whenever a CTA begins."""

    key = "refill"
    keeps_written = True  # so the size of local memory is known

    def __init__(self, filling: int) -> None:
        self.filling = filling

    def probe_bytes(self, shared_limit: int, warps: int) -> int:
        return 64

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        memory[0] = self.filling

    def cta(self, b: Builder, worker: Value) -> None:
        filling = b.load("i8", get(b, worker, WORKER_PROBE))
        local = get(b, get(b, worker, WORKER_WARPS), WARP_LOCAL)  # of all warps, the first one's first
        shared = get(b, worker, WORKER_SHARED)
        for memory, size in ((shared, WORKER_SHARED_BYTES), (local, WORKER_LOCAL_BYTES)):
            args = [memory, filling, get(b, worker, size), const("i1", 0)]
            b.intrinsic("memset", "void", args, overloads=["ptr", "i64"])


def decides_nothing(scene: Scene) -> bool:
    """Return whether the launch does the same whatever uninitialised shared and local memory holds."""
    first = scene.trace(Refill(FILLINGS[0]))
    return all(scene.trace(Refill(filling)) == first for filling in FILLINGS[1:])
