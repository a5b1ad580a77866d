"""When asynchronous agents of a log are complete, and for which threads: bulk copies, products of a warpgroup.

An agent accesses shared memory from its instruction on, until its completion is observed:

    bulk load                  complete for a thread that finds the phase of the mbarrier over that counted its bytes
    bulk store, reduction      its source is read for the thread that waited for its group (with or without .read)
    product of a warpgroup     its operands are read for a thread of the warpgroup that waited for its group: the four
                               warps multiply together, so the wait of one holds for all of them
and for threads that are ordered after such a thread. It is ordered after what its thread (of a product: any lane of
its warp) knew and did before its instruction, and never by the order of the thread's later instructions.

In the rows of `clocks.py` each mbarrier of loads, each thread that stores and each warpgroup has one more column: the
number of its last phase or group that is known to be complete.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.vm.mbarrier_word import PHASE_MASK, PHASE_SHIFT
from weft.vm.memory import SHARED_BASE
from weft.vm.runtime.bulk_record import NO_MBARRIER
from weft.vm.wgmma_kind import WARPS

from .copy_clock import NEVER
from .events import PHASE_AT, What
from .observation import Ints, Spot

OF_AGENTS = (What.BULK, What.LANDED, What.BULK_GROUP, What.BULK_WAIT, What.PRODUCT_GROUP, What.PRODUCT_WAIT)
STORES = NO_MBARRIER & 0xFFFFFFFF
"""`number` of a bulk copy that signals no mbarrier: it reads shared memory."""
_ADDRESS = (1 << PHASE_AT) - 1


@dataclass
class Agent:
    """The access of an agent, or the accesses of a product."""

    column: int
    number: int = NEVER
    """The phase or group with which it is complete; NEVER if that is not in the log."""
    ended: int = NEVER
    """The record of the barrier of all threads at which all knew that it is complete."""
    row: int = -1
    """Of a product: the row that the lanes of its warp know together."""


@dataclass(frozen=True)
class Arrival:
    """A load whose bytes an mbarrier has counted: whoever finds the phase at `place` over knows column and number."""

    place: Spot
    column: int
    number: int


class AgentClock:
    """Follows the agents of a log that is read in order."""

    def __init__(self, log: npt.NDArray[np.void], warp_of: Ints, products: npt.NDArray[np.bool_], first: int) -> None:
        self.log = log
        self.columns: dict[tuple[str, int, int], int] = {}
        self.issued: dict[int, Agent] = {}
        """The record of an instruction → its agent."""
        self.left: list[int] = []
        """After the log: records of bulk stores for which their thread has not waited, and of loads that arrived at an
        mbarrier without a thread that observed it."""
        self._first = first
        self._flying: dict[tuple[object, ...], list[Agent]] = {}
        self._groups: dict[tuple[str, int, int], int] = {}
        self._phases: dict[int, int] = {}
        self._open: list[Agent] = []
        for record in np.flatnonzero(log["what"] == What.BULK).tolist():
            self._add_column(self._bulk_key(record, int(warp_of[record])))
        for warp, cta in np.unique(np.stack([log["warp"][products], log["cta"][products]]), axis=1).T.tolist():
            self._add_column(("wgmma", cta, warp // WARPS))

    def _add_column(self, key: tuple[str, int, int]) -> None:
        self.columns.setdefault(key, self._first + len(self.columns))

    def _bulk_key(self, record: int, warp: int) -> tuple[str, int, int]:
        row = self.log[record]
        if int(row["number"]) == STORES:
            return ("bulk", warp, int(row["lanes"]).bit_length() - 1)
        return ("mbarrier", int(row["owner"]), int(row["number"]))

    def _product_key(self, record: int) -> tuple[str, int, int]:
        return ("wgmma", int(self.log["cta"][record]), int(self.log["warp"][record]) // WARPS)

    # -- issue -----------------------------------------------------------------------------------------------------

    def issue_bulk(self, record: int, warp: int) -> None:
        key = self._bulk_key(record, warp)
        agent = self.issued[record] = Agent(self.columns[key])
        if key[0] == "bulk":
            agent.number = self._groups.get(key, 0)
            self._open.append(agent)
        else:
            self._flying.setdefault(self._identity(record), []).append(agent)

    def issue_product(self, record: int, warp: int, row: int) -> Agent:
        """Return the agent of a product; the other operands that its warp names without a break belong to it, too."""
        number = self._groups.get(("wgmma", warp, 0), 0)
        agent = self.issued[record] = Agent(self.columns[self._product_key(record)], number, row=row)
        self._open.append(agent)
        return agent

    def _identity(self, record: int) -> tuple[object, ...]:
        """Copies that agree in this are interchangeable. A multicast is one for each CTA that it writes to."""
        row = self.log[record]
        lane = int(row["lanes"]).bit_length() - 1
        names = ("owner", "warp", "lanes", "site", "bytes")
        return (*(int(row[name]) for name in names), int(row["number"]) & _ADDRESS, int(row["address"][lane]))

    # -- completion ------------------------------------------------------------------------------------------------

    def land(self, record: int, cta: int) -> Arrival | None:
        """Return what a load publishes at its mbarrier; None if its instruction is not in the log."""
        flying = self._flying.get(self._identity(record))
        if not flying:
            return None
        agent, number = flying.pop(0), int(self.log["number"][record])
        phase, mbarrier = number >> PHASE_AT, number & _ADDRESS
        last = self._phases.get(agent.column, 0)
        agent.number = self._phases[agent.column] = last + (phase - last & PHASE_MASK)
        self._open.append(agent)
        place = (cta, SHARED_BASE + mbarrier + (phase + 1 << PHASE_SHIFT))
        return Arrival(place, agent.column, agent.number)

    def close_group(self, record: int, warp: int, lanes: npt.NDArray[np.intp]) -> None:
        products = self.log["what"][record] == What.PRODUCT_GROUP
        for lane in [0] if products else lanes.tolist():
            key = ("wgmma" if products else "bulk", warp, lane)
            self._groups[key] = self._groups.get(key, 0) + 1

    def wait(self, record: int, warp: int, lanes: npt.NDArray[np.intp]) -> list[tuple[list[int], int, int]]:
        """Return what lanes learn when they have waited for all but their last groups: lanes, column, number."""
        pending = int(self.log["number"][record])
        if self.log["what"][record] == What.PRODUCT_WAIT:
            column = self.columns.get(self._product_key(record))
            done = self._groups.get(("wgmma", warp, 0), 0) - pending - 1
            return [(lanes.tolist(), column, done)] if column is not None and done >= 0 else []
        found = []
        for lane in lanes.tolist():
            column = self.columns.get(("bulk", warp, lane))
            done = self._groups.get(("bulk", warp, lane), 0) - pending - 1
            if column is not None and done >= 0:
                found.append(([lane], column, done))
        return found

    def meet(self, record: int, row: Ints) -> None:
        """Record that all threads know `row` at a barrier of all threads."""
        for agent in self._open:
            if row[agent.column] >= agent.number:
                agent.ended = record
        self._open = [agent for agent in self._open if agent.ended == NEVER]

    def finish(self, row_of: Callable[[int, int], Ints], every: Sequence[Ints]) -> None:
        """Record which copies are left; `row_of` returns the last row of a warp's lane, `every` has those of all."""
        known = {}
        for (queue, warp, lane), column in self.columns.items():
            if queue == "bulk":
                known[column] = int(row_of(warp, lane)[column])
            elif queue == "mbarrier":
                known[column] = max(int(row[column]) for row in every)
        self.left = [
            record
            for record, agent in self.issued.items()
            if agent.number != NEVER and known.get(agent.column, NEVER) < agent.number
        ]


def of_products(log: npt.NDArray[np.void], sites: Collection[int]) -> npt.NDArray[np.bool_]:
    """Return which records are rows of operands of the products at `sites`."""
    found: npt.NDArray[np.bool_] = (log["what"] == What.TILE) & np.isin(log["site"], list(sites))
    return found


def loads(log: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Return which records are bulk loads."""
    found: npt.NDArray[np.bool_] = (log["what"] == What.BULK) & (log["number"] != STORES)
    return found
