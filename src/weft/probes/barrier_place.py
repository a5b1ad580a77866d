"""Which of two racing accesses the barrier belongs after.

Which of the two came first in a run is arbitrary. In a loop that has no barrier at its end, a warp that runs ahead
writes the next tile before another has read this one:

    warp 0   write; barrier; read; write (next round); …
    warp 1   write; barrier;                             read; …
That is a read after a write, and a barrier already follows the write. The missing barrier belongs after the read.

Two observations decide. First, what a warp does between two of its barriers: if it reads and then writes, writes have
to wait for reads. Second, where no warp does both, which value the read should return. If the line of the write has
written the bytes before, in order, the read should return that value, and the racing write came too early. If no
thread has written these shared bytes before, the read came too early.
"""

import numpy as np
import numpy.typing as npt

from weft.core.records import inlining_chain
from weft.vm.memory import GLOBAL_BASE

from .conflict import Actor, Conflict
from .events import What
from .order import Order, lanes_in, touches
from .semantics import Semantics

_Log = npt.NDArray[np.void]
_Line = tuple[tuple[str, int], ...] | int

_READS = (What.LOAD, What.TILE, What.ATOMIC)
_WRITES = (What.STORE, What.ATOMIC, What.EXCHANGE, What.COPY)


def barrier_behind(conflict: Conflict, log: _Log, order: Order, semantics: Semantics) -> Actor:
    """Return the access of the conflict that the other one should wait for."""
    earlier, later = conflict.earlier, conflict.later
    if conflict.code not in ("R102", "R103") or conflict.across or earlier.warp == later.warp:
        return earlier
    write, read = (earlier, later) if conflict.code == "R102" else (later, earlier)
    read_line, write_line = _line(semantics, read.site), _line(semantics, write.site)
    reads = _adjacent(write, log, semantics, read_line, _READS)
    writes = _adjacent(read, log, semantics, write_line, _WRITES)
    read_first = bool((reads < write.record).any() or (writes > read.record).any())
    write_first = bool((reads > write.record).any() or (writes < read.record).any())
    if read_first != write_first:
        return read if read_first else write
    known = _lines_known(read, conflict.address, log, order, semantics)
    if conflict.code == "R102":
        return read if write_line in known else write
    return read if known or conflict.address >= GLOBAL_BASE else write


def _line(semantics: Semantics, site: int) -> _Line:
    """The source line of a site with the calls it was inlined into: an unrolled loop has many sites of one line."""
    ins = semantics.at(site)
    return tuple((at.file, at.line) for at in inlining_chain(ins.place if ins else None)) or site


def _adjacent(
    actor: Actor, log: _Log, semantics: Semantics, line: _Line, kinds: tuple[What, ...]
) -> npt.NDArray[np.intp]:
    """Records of the actor's warp at `line`, between the barriers before and after the actor's access."""
    mine = np.flatnonzero((log["cta"] == actor.cta) & (log["warp"] == actor.warp) & (log["what"] != What.COMPLETE))
    barriers = mine[log["what"][mine] == What.ARRIVE]
    place = np.searchsorted(barriers, actor.record)
    first = barriers[place - 1] if place else -1
    last = barriers[place] if place < len(barriers) else len(log)
    here = mine[(mine > first) & (mine < last) & np.isin(log["what"][mine], kinds)]
    at_line = [site for site in np.unique(log["site"][here]).tolist() if _line(semantics, site) == line]
    return here[np.isin(log["site"][here], at_line)]


def _lines_known(read: Actor, address: int, log: _Log, order: Order, semantics: Semantics) -> set[_Line]:
    """Lines that wrote `address` before the read and in order with it."""
    lane = next((lane for lane in lanes_in(read.lanes).tolist() if _covers(log[read.record], lane, address)), None)
    if lane is None:
        return set()
    known = order.rows[order.snapshots[order.snapshot_of[read.record]].rows[lane]]
    per_cta = len(order.column_of) // len(order.ctas)
    first_thread = int(np.searchsorted(order.ctas, read.cta)) * per_cta
    found: set[_Line] = set()
    before = touches(log[: read.record])
    for record in before[(log["cta"][before] == read.cta) & np.isin(log["what"][before], _WRITES)].tolist():
        row = log[record]
        epochs = order.snapshots[order.snapshot_of[record]].epochs
        for writer in lanes_in(int(row["lanes"])).tolist():
            if _covers(row, writer, address):
                copy = order.copies.issued.get(record)
                end = int(epochs[writer] if copy is None else copy.epoch[writer])
                column = order.column_of[first_thread + int(row["warp"]) * len(epochs) + writer]
                if known[column] >= end:
                    found.add(_line(semantics, int(row["site"])))
    return found


def _covers(row: np.void, lane: int, address: int) -> bool:
    start = int(row["address"][lane])
    return bool(start <= address < start + int(row["bytes"]))
