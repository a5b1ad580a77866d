"""When the asynchronous copies of a log are over, and for whom.

    cp.async.wait_group        over for the thread that waits, and for those who are ordered behind its wait
    cp.async.mbarrier.arrive   all copies of the thread so far are over for who finds the phase over at which they arrive

The second says nothing of the thread's other accesses (PTX ISA 9.7.13.15.16: of a completed phase, a test makes visible
the accesses before mbarrier.arrive "except async operations", and the cp.async before cp.async.mbarrier.arrive). It
comes when the bytes do, not when the thread is at the instruction, so it cannot be an epoch of the thread. In the rows of
`clocks.py` every thread that uses it has one more column: the number of the last such arrival that is known.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES

from .observation import Ints

_ALL = np.uint32(0xFFFFFFFF)
Issue = tuple[int, int]
"""A copy: the record that issued it, and a lane."""


@dataclass
class _Queue:
    """The copies of a warp, each as its record, the lanes that have not yet waited (arrived), and their groups."""

    groups: Ints = field(default_factory=lambda: np.zeros(LANES, np.int32))
    waiting: list[tuple[int, int, Ints]] = field(default_factory=list)
    loose: list[tuple[int, int]] = field(default_factory=list)


class CopyClock:
    """Follows the copies of a log that is read in order; `threads` arrive by copies, their columns start at a number."""

    def __init__(self, threads: Iterable[int], first_column: int) -> None:
        self.columns = {thread: first_column + number for number, thread in enumerate(sorted(set(threads)))}
        self.waited: dict[Issue, tuple[int, int]] = {}
        """Copy → the record at which its thread had waited for it, and the thread's epoch then."""
        self.attached: dict[Issue, tuple[int, int]] = {}
        """Copy → column of its thread, and the number of the first arrival that covers it."""
        self.ended: dict[Issue, int] = {}
        """Copy → the barrier of everybody at which all knew its arrival."""
        self._queues: dict[int, _Queue] = {}
        self._numbers = dict.fromkeys(self.columns, 0)
        self._coming: dict[tuple[int, int], list[int]] = {}
        self._open: dict[Issue, tuple[int, int]] = {}

    def _queue(self, warp: int) -> _Queue:
        return self._queues.setdefault(warp, _Queue())

    def issue(self, record: int, warp: int, lanes: int) -> None:
        queue = self._queue(warp)
        queue.waiting.append((record, lanes, queue.groups.copy()))
        queue.loose.append((record, lanes))

    def group(self, warp: int, lanes: npt.NDArray[np.intp]) -> None:
        self._queue(warp).groups[lanes] += 1

    def wait(self, record: int, warp: int, lanes: npt.NDArray[np.intp], pending: np.uint32, epochs: Ints) -> None:
        """The lanes waited for all but `pending` groups."""
        queue = self._queue(warp)
        left = []
        for issue, mask, groups in queue.waiting:
            done = lanes if pending == _ALL else lanes[groups[lanes] < queue.groups[lanes] - int(pending)]
            for lane in done.tolist():
                if mask >> lane & 1:
                    self.waited[issue, lane] = (record, int(epochs[lane]))
                    self._open.pop((issue, lane), None)
                    mask &= ~(1 << lane)
            if mask:
                left.append((issue, mask, groups))
        queue.waiting = left

    def attach(self, warp: int, lanes: npt.NDArray[np.intp], mbarriers: npt.NDArray[np.uint64]) -> None:
        """The copies of the lanes so far will arrive at their mbarriers."""
        here = sum(1 << lane for lane in lanes.tolist())
        for lane in lanes.tolist():
            thread = warp * LANES + lane
            self._coming.setdefault((thread, int(mbarriers[lane])), []).append(self._numbers[thread])
        queue = self._queue(warp)
        left = []
        for issue, mask in queue.loose:
            for lane in lanes.tolist():
                if mask >> lane & 1:
                    thread = warp * LANES + lane
                    mark = (self.columns[thread], self._numbers[thread])
                    self.attached[issue, lane] = mark
                    if (issue, lane) not in self.waited:
                        self._open[issue, lane] = mark
            if mask & ~here:
                left.append((issue, mask & ~here))
        queue.loose = left
        for lane in lanes.tolist():
            self._numbers[warp * LANES + lane] += 1

    def arrive(self, thread: int, mbarrier: int) -> tuple[int, int] | None:
        """Return the column and the number of the arrival that comes there next; None if none was announced."""
        coming = self._coming.get((thread, mbarrier))
        return (self.columns[thread], coming.pop(0)) if coming else None

    def meet(self, record: int, row: Ints) -> None:
        """At a barrier of everybody all know `row`."""
        for copy, (column, number) in list(self._open.items()):
            if row[column] >= number:
                self.ended[copy] = record
                del self._open[copy]
