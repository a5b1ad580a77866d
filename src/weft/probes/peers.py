"""Accesses to the shared memory of another CTA of the cluster before it has started, or after it has ended.

CTAs of a cluster are scheduled together, but each starts and ends by itself. An access to another CTA is safe if

    the CTA has started     the thread knows of something that a thread there did, or its CTA has waited for the cluster
    the CTA has not ended   a thread there knows of the access before it exits, or has waited for the cluster after it
No schedule has to show it. A relaxed arrival at the cluster's barrier is enough: it orders no memory, but threads wait.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.vm.ir import LANES
from weft.vm.mbarrier_word import PHASE_MASK, PHASE_SHIFT

from .agent_clock import loads
from .conflict import Actor, Conflict
from .order import Order, lanes_in, touches
from .semantics import Semantics

_Log = npt.NDArray[np.void]
_Thread = tuple[int, int, int]
"""CTA, warp, lane."""


def unsafe_peers(log: _Log, order: Order, semantics: Semantics) -> list[Conflict]:
    """Return accesses to CTAs of the cluster that may not have started (S316), or may have ended (S312)."""
    records = touches(log)
    records = records[log["cta"][records] != log["owner"][records]]
    if not len(records):
        return []
    barrier = _Barrier(log, semantics)
    found: dict[tuple[str, int], Conflict] = {}
    for record in records.tolist():
        row = log[record]
        lanes = lanes_in(int(row["lanes"]))
        unstarted = [] if barrier.has_waited(int(row["cta"]), record) else _unstarted(log, record, lanes, order)
        ended = [lane for lane in _ended(log, record, lanes, order) if not barrier.joins(row, lane, record)]
        for code, which in (("S316", unstarted), ("S312", ended)):
            if which:
                mask = sum(1 << lane for lane in which)
                actor = Actor(int(row["site"]), int(row["cta"]), int(row["warp"]), mask, record)
                address, size = int(row["address"][which[0]]), int(row["bytes"])
                case = Conflict(code, Severity.ERROR, actor, actor, address, size, 1, actor, owner=int(row["owner"]))
                found.setdefault((code, actor.site), case)
    return list(found.values())


def _unstarted(log: _Log, record: int, lanes: npt.NDArray[np.intp], order: Order) -> list[int]:
    """Return the lanes that know nothing of what threads of the other CTA did."""
    there = order.columns_in(int(np.searchsorted(order.ctas, log["owner"][record])))
    known = order.rows[order.snapshots[order.snapshot_of[record]].rows[lanes]][:, there]
    found: list[int] = lanes[known.max(axis=1, initial=-1) < 0].tolist()
    return found


def _ended(log: _Log, record: int, lanes: npt.NDArray[np.intp], order: Order) -> list[int]:
    """Return the lanes whose access no thread of the other CTA knows of in the end."""
    row = log[record]
    last = order.last_known[int(np.searchsorted(order.ctas, row["owner"]))]
    if loads(log[record : record + 1])[0]:
        agent = order.agents.issued[record]
        return [] if last[agent.column] >= agent.number else lanes.tolist()
    per_cta = len(order.column_of) // len(order.ctas)
    first = int(np.searchsorted(order.ctas, row["cta"])) * per_cta + int(row["warp"]) * LANES
    known = last[order.column_of[first + lanes]] >= order.snapshots[order.snapshot_of[record]].epochs[lanes]
    found: list[int] = lanes[~known].tolist()
    return found


class _Barrier:
    """Who arrives at the barrier of the cluster in a log, and who waits there."""

    def __init__(self, log: _Log, semantics: Semantics) -> None:
        self._first_wait: dict[int, int] = {}
        """CTA → the first record in which one of its threads has waited."""
        self._last_phase: dict[int, int] = {}
        """CTA → the last phase for which one of its threads has waited."""
        self._arrivals: dict[_Thread, list[tuple[int, int]]] = {}
        """Thread → record and phase of each of its arrivals, in order."""
        latest = 0
        for record, arrives in _uses(log, semantics):
            row = log[record]
            cta, warp = int(row["cta"]), int(row["warp"])
            phases = row["value"].view(np.uint64) >> np.uint64(PHASE_SHIFT)
            for lane in lanes_in(int(row["lanes"])).tolist():
                # A log has the lowest bits of the number; threads are never two phases apart.
                behind = latest - int(phases[lane]) & PHASE_MASK
                phase = latest - behind if behind <= PHASE_MASK // 2 else latest + PHASE_MASK + 1 - behind
                latest = max(latest, phase)
                if arrives:
                    self._arrivals.setdefault((cta, warp, lane), []).append((record, phase))
                else:
                    self._first_wait.setdefault(cta, record)
                    self._last_phase[cta] = max(self._last_phase.get(cta, -1), phase)

    def has_waited(self, cta: int, record: int) -> bool:
        """Whether a thread of the CTA has waited for the cluster before."""
        return self._first_wait.get(cta, record) < record

    def joins(self, row: np.void, lane: int, record: int) -> bool:
        """Whether the thread arrives afterwards, in a phase for which a thread of the other CTA waits."""
        last = self._last_phase.get(int(row["owner"]), -1)
        arrivals = self._arrivals.get((int(row["cta"]), int(row["warp"]), lane), [])
        return any(after > record and phase <= last for after, phase in arrivals)


def _uses(log: _Log, semantics: Semantics) -> Iterator[tuple[int, bool]]:
    """Yield the records of the cluster's barrier, and whether they are arrivals."""
    arrives = {}
    for site in np.unique(log["site"]).tolist():
        ins = semantics.at(site)
        if ins is not None and ins.facts.group == "cluster":
            arrives[site] = ins.facts.order == "release"
    for record in np.flatnonzero(np.isin(log["site"], list(arrives)) & (log["element"] != 0)).tolist():
        yield record, arrives[int(log["site"][record])]
