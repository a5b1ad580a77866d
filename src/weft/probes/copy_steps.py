"""Which step a copy in flight lacks: the end of its group, the wait for it, or the barrier behind the wait.

    cp.async → cp.async.commit_group → cp.async.wait_group → barrier → access by another thread

A wait counts for an access if the accessing thread knows of it, whatever the order of the records is. Without one, the
accessing thread's own copy of the same instruction shows whether the program waits before this access.
"""

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES

from .conflict import Actor, Conflict, CopyStep
from .copy_clock import NEVER
from .events import What
from .order import Order

_Log = npt.NDArray[np.void]


def missing_step(conflict: Conflict, log: _Log, order: Order) -> CopyStep | None:
    """Return the step of a copy that is accessed too early; None for other conflicts, and where it is not known."""
    copy, access = conflict.earlier, conflict.later
    if conflict.code != "R104" or conflict.agent or conflict.across or order.copies.columns:
        return None
    if log["what"][access.record] == What.COPY:  # two copies to the same bytes: one of them has a wrong address
        return None
    shared = copy.lanes & access.lanes if copy.warp == access.warp else 0
    lane, reader = _first(shared or copy.lanes), _first(shared or access.lanes)
    after = _of_thread(log, copy, lane, (What.GROUP, What.WAIT))
    after = after[after > copy.record]
    known = after[_is_before(after, copy, lane, access, reader, order)]
    waited = int(order.copies.issued[copy.record].waited[lane])
    if waited in known:  # lanes of one warp: the wait holds for the lane that waits
        return CopyStep("barrier", int(log["site"][waited]))
    own = None if shared else _own_copy(conflict, log, reader)
    if own is not None and (wait := int(order.copies.issued[own].waited[reader])) < access.record:
        return CopyStep("barrier", int(log["site"][wait]))
    waits = known[log["what"][known] == What.WAIT]
    groups = after[log["what"][after] == What.GROUP]
    if len(waits):
        last = int(waits[-1])
        ended = bool((groups < last).any())
        return CopyStep("left", int(log["site"][last]), int(log["number"][last])) if ended else CopyStep("commit")
    if not len(groups) and waited == NEVER:
        return CopyStep("commit")
    return CopyStep("wait") if shared or own is not None else None


def _own_copy(conflict: Conflict, log: _Log, lane: int) -> int | None:
    """Return the last copy of the same instruction that the accessing thread itself made before; None without one."""
    access = conflict.later
    own = _of_thread(log, access, lane, (What.COPY,))
    own = own[(own < access.record) & (log["site"][own] == conflict.earlier.site)]
    return int(own[-1]) if len(own) else None


def _first(lanes: int) -> int:
    return (lanes & -lanes).bit_length() - 1


def _of_thread(log: _Log, actor: Actor, lane: int, kinds: tuple[What, ...]) -> npt.NDArray[np.intp]:
    mine = (log["cta"] == actor.cta) & (log["warp"] == actor.warp) & np.isin(log["what"], kinds)
    return np.flatnonzero(mine & ((log["lanes"] >> np.uint32(lane) & 1) != 0))


def _is_before(
    records: npt.NDArray[np.intp], copy: Actor, lane: int, access: Actor, reader: int, order: Order
) -> npt.NDArray[np.bool_]:
    """Whether records of the copying thread are ordered before the access."""
    if copy.warp == access.warp:
        return np.asarray(records < access.record)
    row = order.snapshots[order.snapshot_of[access.record]].rows[reader]
    per_cta = len(order.column_of) // len(order.ctas)
    thread = int(np.searchsorted(order.ctas, copy.cta)) * per_cta + copy.warp * LANES + lane
    known = order.rows[row, order.column_of[thread]]
    epochs = [order.snapshots[order.snapshot_of[record]].epochs[lane] for record in records.tolist()]
    return np.asarray(np.array(epochs, np.int64) <= known)
