"""Whether the contents of uninitialised shared and local memory change a launch: runs it with other contents.

A value that is never stored to global memory and decides no branch changes no result bit and no block count. A value
that decides a branch about elements that are never stored, such as padded rows of a tile, changes block counts but no
result. This covers all CTAs at once and costs a few plain runs; it cannot tell which read had the effect, nor see a
comparison with a value that no filling contains. `taint.py` can, where following the values is affordable.
"""

from enum import Enum

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
from weft.vm.program import Program
from weft.vm.runtime.shape import count_range, get
from weft.vm.runtime.watch import Instrumentation, Scene

FILLINGS = (0xFF, 0x00, 0x01, 0x5A, 0xDA)
"""Bytes: NaN, zero, true, a large number and its negative, in every width of float and integer."""


MULTIPLIERS = (0x9E3779B1, 0x85EBCA6B)
"""Factors of the word's number: the products look like random words, numbers of all sizes and both signs."""


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


class Mix(Refill):
    """Fills them with words that all differ: equal ones cancel in `score - maximum` or `x - x`."""

    key = "mix"

    def __init__(self, multiplier: int) -> None:
        self.multiplier = multiplier

    def prepare(self, memory: npt.NDArray[np.uint8], shared_limit: int, warps: int) -> None:
        memory[:4] = np.array([self.multiplier], np.uint32).view(np.uint8)

    def cta(self, b: Builder, worker: Value) -> None:
        multiplier = b.load("i32", get(b, worker, WORKER_PROBE))
        local = get(b, get(b, worker, WORKER_WARPS), WARP_LOCAL)
        shared = get(b, worker, WORKER_SHARED)
        for memory, size in ((shared, WORKER_SHARED_BYTES), (local, WORKER_LOCAL_BYTES)):
            words = b.cast("trunc", b.op("lshr", get(b, worker, size), const("i64", 2)), "i32")
            with count_range(b, words) as i:
                mixed = b.op("mul", b.op("add", i, const("i32", 1)), multiplier)
                at = b.op("shl", b.cast("zext", i, "i64"), const("i64", 2))
                b.store(mixed, b.offset(memory, at), align=4)


class Effect(Enum):
    """What changes in a launch with other contents of uninitialised shared and local memory."""

    NOTHING = 0
    WAYS = 1
    """The branches it takes, not its results."""
    RESULT = 2


def effect_of_contents(scene: Scene, program: Program | None = None) -> Effect:
    """Return what other contents change in the launch's memory, findings and branches, as far as the fillings show.

    `program` runs in place of the launch's own, with the same parameters.
    """
    found = Effect.NOTHING
    contents: tuple[Refill, ...] = (*map(Refill, FILLINGS), *map(Mix, MULTIPLIERS))
    left, ways = scene.trace(contents[0], program)
    for other in contents[1:]:
        other_left, other_ways = scene.trace(other, program)
        if other_left != left:
            return Effect.RESULT
        if other_ways != ways:
            found = Effect.WAYS
    return found
