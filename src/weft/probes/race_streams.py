"""Which CTAs need no judgement: those that did the same as a CTA without a race, in this launch or an earlier one.

"The same" is an equal digest of their streams of events (`stream.py`). The verdict on a CTA follows from its log, and
CTAs with equal streams have equal logs, in the same order, except for three things:

    its number           only names the CTA in a finding
    stored values        only decide which of the pairs of accesses that nothing orders are harmless (the same value): a
                         CTA without such pairs has no race, whatever is stored (`Judgement.settled`)
    global addresses     decide where threads synchronise through global memory, which tensor maps in it are written,
                         and whether a copy's source is overwritten. A CTA that does one of the first two clears no
                         other. The third is possible only if the launch writes to a buffer that it reads, which the
                         first pass over global memory knows (`global_race.py`)
The order of events is part of the stream. Another interleaving of the warps may have the same verdict, but that would
have to be shown, so such a CTA is judged as well. A CTA with a race clears no other: each is judged and counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES
from weft.vm.memory import GLOBAL_BASE
from weft.vm.program import ProgramSource
from weft.vm.runtime.watch import Scene

from .events import What
from .global_race import reads_what_it_writes
from .semantics import Semantics

MOST_KEPT = 4096
"""Digests that are kept for a kernel."""
_WRITES = (What.STORE, What.ATOMIC, What.EXCHANGE)


@dataclass(frozen=True)
class _Clean:
    """A stream without a race."""

    cost: int
    """How many records it took to judge it."""
    writes_and_copies: bool
    """Whether it has cp.async and writes to global memory: it has no race if no buffer is both read and written."""


_Kept = dict[tuple[int, bytes], _Clean]
_kept: "WeakKeyDictionary[ProgramSource, _Kept]" = WeakKeyDictionary()
"""Kernel → threads of a CTA and digest → what is known about that stream."""


def forget_streams() -> None:
    """Forget all streams, to measure what it costs to judge them."""
    _kept.clear()


class Streams:
    """The streams of the CTAs of a launch, and which of them are known to have no race."""

    def __init__(self, scene: Scene, digests: npt.NDArray[np.uint64]) -> None:
        self._digests = digests
        self._threads = math.prod(scene.launch.block)
        self._known = _kept.setdefault(scene.source, {})
        self._mixed = reads_what_it_writes(scene.boards, scene.memory)
        self._cleared: set[bytes] = set()

    def digest(self, cta: int) -> npt.NDArray[np.uint64]:
        """Return the digest of a CTA's stream."""
        found: npt.NDArray[np.uint64] = self._digests[cta]
        return found

    def firsts(self, ctas: Sequence[int]) -> list[int]:
        """Return the first CTA of each stream."""
        found: dict[bytes, int] = {}
        for cta in ctas:
            found.setdefault(self.digest(cta).tobytes(), cta)
        return list(found.values())

    def cost(self, cta: int) -> int | None:
        """Return how many records it took to judge this CTA's stream, which has no race; None if that is not known."""
        found = self._known.get((self._threads, self.digest(cta).tobytes()))
        return None if found is None or (found.writes_and_copies and self._mixed) else found.cost

    def clear(self, cta: int) -> None:
        """Let all CTAs of this launch with the same stream count as judged, if it is known to have no race."""
        if self.cost(cta) is not None:
            self._cleared.add(self.digest(cta).tobytes())

    def is_cleared(self, cta: int) -> bool:
        return self.digest(cta).tobytes() in self._cleared

    def keep(self, log: npt.NDArray[np.void], digest: npt.NDArray[np.uint64], semantics: Semantics, cost: int) -> None:
        """Keep that a stream, with this whole log, has no race whatever is stored; not if global addresses decide."""
        on = ((log["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
        far = (on & (log["address"] >= GLOBAL_BASE)).any(axis=1)
        strong = [site for site in np.unique(log["site"][far]).tolist() if semantics.kind(site)]
        maps = np.isin(log["what"][far], (What.MAP, What.MAP_ACQUIRE))
        if strong or maps.any() or not digest.any():
            return
        copies = (log["what"] == What.COPY).any() and np.isin(log["what"][far], _WRITES).any()
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[self._threads, digest.tobytes()] = _Clean(cost, bool(copies))
