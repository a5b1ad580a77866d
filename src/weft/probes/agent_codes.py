"""Which mistake a race with an agent is: a bulk copy, or a product of a warpgroup.

Which of the two accesses came first in a run is arbitrary, so the records alone do not tell whether a thread read a
stage too early (R104) or a load refilled it too early (R109). Rounds do: a stage is filled by loads, and read each time
that a thread has found a phase of their mbarrier over.

    load and read    the reader has waited more often than the stage was filled before this load: it wants these bytes
                     (R104); otherwise it is the reader of an earlier round, and the load came too early (R109)
    read and write   an operand of a product, or the source of a bulk store: if anything else wrote the bytes before,
                     they are in use, and the write came too early (R105); otherwise the read did (R102)
"""

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.vm.ir import LANES
from weft.vm.memory import SHARED_BASE
from weft.vm.tensor_map import BYTES

from .agent_clock import loads, of_products
from .conflict import Actor, Conflict
from .events import What
from .order import Order
from .semantics import Semantics, ordering

_Log = npt.NDArray[np.void]
_BY_RECORDS = ("R101", "R102", "R103", "R104", "R105")
"""Codes that follow from the order of the records, from which the mistake may differ."""
_CTA_SHIFT = 16
"""A CTA has fewer threads than 2 to this power."""
_WRITES = (What.STORE, What.ATOMIC, What.EXCHANGE, What.COPY)


def recoded(conflict: Conflict, log: _Log, semantics: Semantics) -> Conflict:
    """Return the conflict with the code of its mistake, if one of the two is an agent; the later one came too early."""
    earlier, later = conflict.earlier, conflict.later
    sides = (earlier, later)
    if conflict.code not in _BY_RECORDS:
        return conflict
    load = next((side for side in reversed(sides) if _is_load(log, side)), None)
    if load is not None:
        other = earlier if load is later else later
        if _is_load(log, other) or log["what"][other.record] in _WRITES:
            wanted = load is earlier or _is_load(log, other)
            return replace(conflict, code="R104" if wanted else "R109", agent="bulk" if wanted else "")
        filled = loads(log) & _covers(log, conflict)
        waits = _waits(log, np.unique(log["number"][filled]), conflict.owner, other, semantics)
        wanted = waits > int(filled[: load.record].sum()) or not waits
        first, second = (load, other) if wanted else (other, load)
        kind = _kind(log, first, semantics)
        return replace(
            conflict, code="R104" if wanted else "R109", earlier=first, later=second, behind=first, agent=kind
        )
    read = next((side for side in sides if _kind(log, side, semantics)), None)
    if read is None:
        return conflict
    write = earlier if read is later else later
    if write is earlier and log["what"][write.record] == What.COPY:
        return conflict
    if not _written_before(log, read, write, conflict):
        return replace(conflict, code="R102", earlier=write, later=read, behind=write)
    kind = _kind(log, read, semantics)
    return replace(conflict, code="R105", earlier=read, later=write, behind=read, agent=kind)


def unfenced_maps(log: _Log, order: Order) -> list[Conflict]:
    """Return the copies whose tensor map was written without a fence between."""
    found: dict[tuple[int, int], Conflict] = {}
    for each in order.maps.unfenced:
        write, use = _actor(log, each.write), _actor(log, each.use)
        conflict = Conflict("R108", Severity.ERROR, write, use, each.address, BYTES, 1, behind=write)
        found.setdefault((write.site, use.site), conflict)
    return list(found.values())


def _actor(log: _Log, record: int) -> Actor:
    row = log[record]
    return Actor(int(row["site"]), int(row["cta"]), int(row["warp"]), int(row["lanes"]), record)


def left_over(log: _Log, order: Order) -> list[Conflict]:
    """Return the bulk copies for which no thread waited: stores that may still read when the CTA ends, and loads."""
    found: dict[int, Conflict] = {}
    for record in order.agents.left:
        row = log[record]
        lane = int(row["lanes"]).bit_length() - 1
        actor = _actor(log, record)
        address, size = int(row["address"][lane]), int(row["bytes"])
        code = "S309" if _is_load(log, actor) else "S313"
        owner = int(row["owner"])
        case = Conflict(code, Severity.ERROR, actor, actor, address, size, 1, behind=actor, owner=owner)
        found.setdefault(actor.site, case)
    return list(found.values())


def _is_load(log: _Log, side: Actor) -> bool:
    return bool(loads(log[side.record : side.record + 1])[0])


def _kind(log: _Log, side: Actor, semantics: Semantics) -> Literal["", "bulk", "wgmma"]:
    """Return the kind of agent that makes an access; empty for one of a thread."""
    one = log[side.record : side.record + 1]
    return "bulk" if one["what"][0] == What.BULK else "wgmma" if of_products(one, semantics.products)[0] else ""


def _covers(log: _Log, conflict: Conflict) -> npt.NDArray[np.bool_]:
    """Return which records access the first byte of a conflict, by any lane."""
    address = conflict.address
    on = ((log["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    start = log["address"]
    within = (start <= np.uint64(address)) & (np.uint64(address) < start + log["bytes"][:, None].astype(np.uint64))
    found: npt.NDArray[np.bool_] = (on & within).any(axis=1)
    if conflict.owner >= 0:
        found &= log["owner"] == conflict.owner
    return found


def _waits(log: _Log, mbarriers: npt.NDArray[np.uint32], owner: int, reader: Actor, semantics: Semantics) -> int:
    """Return how often the reader found a phase of a CTA's mbarriers over; if never, the thread that did most."""
    before = log[: reader.record]
    before = before[before["owner"] == owner]
    at = np.isin(before["address"], mbarriers.astype(np.uint64) + np.uint64(SHARED_BASE))
    atomic = (before["what"] == What.ATOMIC) & at.any(axis=1)
    tests, at = before[atomic], at[atomic]
    sites = np.unique(tests["site"]).tolist()
    acquire = [site for site in sites if (ins := semantics.at(site)) is not None and ordering(ins) == "acquire"]
    acquires = np.isin(tests["site"], acquire)
    tests, at = tests[acquires], at[acquires]
    on = ((tests["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    index, lane = np.nonzero(on & at)
    tests = tests[index]
    thread = (tests["cta"].astype(np.int64) << _CTA_SHIFT) + tests["warp"].astype(np.int64) * LANES + lane
    who, count = np.unique(thread, return_counts=True)
    first = (reader.cta << _CTA_SHIFT) + reader.warp * LANES
    own = np.isin(who, [first + each for each in range(LANES) if reader.lanes >> each & 1])
    if own.any():
        count = count[own]
    return int(count.max(initial=0))


def _written_before(log: _Log, read: Actor, write: Actor, conflict: Conflict) -> bool:
    """Whether anything but this write has filled the bytes before the read."""
    before = np.arange(len(log)) < read.record
    before[write.record] = False
    writes = before & (np.isin(log["what"], _WRITES) | loads(log))
    return bool(_covers(log[writes], conflict).any())
