"""When the asynchronous copies of a log are complete, and for which threads.

    cp.async.wait_group        complete for the thread that waits, and for threads that are ordered after its wait
    cp.async.mbarrier.arrive   the thread's copies so far are complete for a thread that finds their phase complete

The second orders no other access of the thread (PTX ISA 9.7.13.15.16: of a completed phase, a test makes visible
the accesses before mbarrier.arrive "except async operations", and the cp.async before cp.async.mbarrier.arrive). The
arrival comes when the bytes do, not when the thread is at the instruction, so it cannot be an epoch of the thread. In
the rows of `clocks.py` every thread that uses it has one more column: the number of the last such arrival known.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES

from .observation import Ints

NEVER = np.iinfo(np.int32).max
_ALL = 0xFFFFFFFF
Lanes = npt.NDArray[np.bool_]


def _lanes(value: int) -> npt.NDArray[np.int64]:
    return np.full(LANES, value, np.int64)


@dataclass(frozen=True)
class Copy:
    """The state of the copies of one instruction, lane by lane."""

    groups: Ints
    unwaited: Lanes
    """Lanes that copy and have not waited for it."""
    loose: Lanes
    """Lanes that copy and have attached no arrival since."""
    waited: npt.NDArray[np.int64] = field(default_factory=lambda: _lanes(NEVER))
    """The record at which the lane had waited."""
    epoch: npt.NDArray[np.int64] = field(default_factory=lambda: _lanes(NEVER))
    """The lane's epoch then."""
    ended: npt.NDArray[np.int64] = field(default_factory=lambda: _lanes(NEVER))
    """The barrier of all threads at which all knew about the arrival."""
    late: npt.NDArray[np.int64] = field(default_factory=lambda: _lanes(-1))
    """Column of the lane's arrivals, -1 if none covers the copy."""
    late_number: npt.NDArray[np.int64] = field(default_factory=lambda: _lanes(-1))
    """The first arrival that covers it."""


@dataclass
class _Queue:
    """The copies of a warp that some lane has not yet waited for, and those to which no arrival is attached."""

    groups: Ints = field(default_factory=lambda: np.zeros(LANES, np.int32))
    unwaited: list[Copy] = field(default_factory=list)
    loose: list[Copy] = field(default_factory=list)


class CopyClock:
    """Follows the copies of a log that is read in order; `threads` use arrivals of copies and have a column each."""

    def __init__(self, threads: Iterable[int], first_column: int) -> None:
        self.columns = {thread: first_column + number for number, thread in enumerate(sorted(set(threads)))}
        self.issued: dict[int, Copy] = {}
        """The record of an instruction → its copies."""
        self._queues: dict[int, _Queue] = {}
        self._numbers = dict.fromkeys(self.columns, 0)
        self._coming: dict[tuple[int, int], list[int]] = {}
        self._open: list[Copy] = []

    def _queue(self, warp: int) -> _Queue:
        return self._queues.setdefault(warp, _Queue())

    def issue(self, record: int, warp: int, lanes: npt.NDArray[np.intp]) -> None:
        queue, mask = self._queue(warp), _mask(lanes)
        copy = self.issued[record] = Copy(queue.groups.copy(), mask, mask.copy())
        queue.unwaited.append(copy)
        if self.columns:
            queue.loose.append(copy)

    def group(self, warp: int, lanes: npt.NDArray[np.intp]) -> None:
        self._queue(warp).groups[lanes] += 1

    def wait(self, record: int, warp: int, lanes: npt.NDArray[np.intp], pending: int, epochs: Ints) -> None:
        """Record that the lanes waited for all but `pending` groups."""
        queue, mask = self._queue(warp), _mask(lanes)
        for copy in queue.unwaited:
            done = copy.unwaited & mask
            if pending != _ALL:
                done &= copy.groups < queue.groups - pending
            copy.waited[done], copy.epoch[done] = record, epochs[done]
            copy.unwaited[done] = False
        queue.unwaited = [copy for copy in queue.unwaited if copy.unwaited.any()]

    def attach(self, warp: int, lanes: npt.NDArray[np.intp], mbarriers: npt.NDArray[np.uint64]) -> None:
        """Attach the lanes' copies so far to their mbarriers."""
        mask, columns, numbers = _mask(lanes), _lanes(-1), _lanes(-1)
        for lane in lanes.tolist():
            thread = warp * LANES + lane
            columns[lane], numbers[lane] = self.columns[thread], self._numbers[thread]
            self._coming.setdefault((thread, int(mbarriers[lane])), []).append(self._numbers[thread])
            self._numbers[thread] += 1
        queue = self._queue(warp)
        for copy in queue.loose:
            now = copy.loose & mask
            copy.late[now], copy.late_number[now] = columns[now], numbers[now]
            copy.loose[now] = False
        self._open += [copy for copy in queue.loose if not copy.loose.any()]
        queue.loose = [copy for copy in queue.loose if copy.loose.any()]

    def arrive(self, thread: int, mbarrier: int) -> tuple[int, int] | None:
        """Return the column and the number of the next arrival there; None if none is attached."""
        coming = self._coming.get((thread, mbarrier))
        return (self.columns[thread], coming.pop(0)) if coming else None

    def meet(self, record: int, row: Ints) -> None:
        """Record that all threads know `row` at a barrier of all threads."""
        for copy in self._open:
            known = (copy.late >= 0) & (row[copy.late] >= copy.late_number) & (copy.ended == NEVER)
            copy.ended[known] = record
        self._open = [copy for copy in self._open if ((copy.late >= 0) & (copy.ended == NEVER)).any()]


def _mask(lanes: npt.NDArray[np.intp]) -> Lanes:
    mask = np.zeros(LANES, bool)
    mask[lanes] = True
    return mask
