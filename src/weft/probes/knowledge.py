"""What the threads of a log know about each other while it is read in order: rows, epochs, and what is published next.

`clocks.py` explains rows and epochs, and says which event changes them how.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES

from .agent_clock import AgentClock, of_products
from .copy_clock import CopyClock
from .events import What
from .map_clock import MapClock
from .observation import Ints, Observation, Spot
from .order import Snapshot, touches
from .ready import Ready
from .semantics import Semantics


@dataclass
class Warp:
    """The state of a warp's lanes."""

    rows: Ints
    epochs: Ints
    current: int = -1
    """Index of the snapshot, -1 once something changed."""


class Knowledge:
    """The rows and epochs of the threads of a log; `observed` are places whose observation order is tracked."""

    def __init__(self, log: npt.NDArray[np.void], threads: int, semantics: Semantics, observed: Iterable[Spot]) -> None:
        self.log, self.semantics = log, semantics
        self.ctas, cta = np.unique(log["cta"], return_inverse=True)
        self.per_cta = -(-threads // LANES)
        count = self.per_cta * len(self.ctas)
        self.cta_of = cta.astype(np.int32)
        self.owner_of = np.searchsorted(self.ctas, log["owner"]).astype(np.int32)
        """Record → the index of the CTA whose shared memory it accesses."""
        self.warp_of = self.cta_of * self.per_cta + log["warp"].astype(np.int32)
        actors = self.threads_of(touches(log))
        self.column_of = np.full(count * LANES, -1, np.int32)
        self.column_of[actors] = np.arange(len(actors), dtype=np.int32)
        self.copies = CopyClock(self.threads_of(np.flatnonzero(log["what"] == What.ATTACH)).tolist(), len(actors))
        first = len(actors) + len(self.copies.columns)
        products = of_products(log, semantics.products)
        self.products: list[bool] = products.tolist()
        self.agents = AgentClock(log, self.warp_of, products, first)
        self.maps = MapClock.of(log, first + len(self.agents.columns))
        first += len(self.agents.columns) + len(self.maps.columns)
        self.observation = Observation(observed, first)
        self.width = first + len(self.observation.columns)
        """Columns of what is known; with agents, as many follow for what is fenced."""
        self.rows: list[Ints] = [np.full(self.width * (2 if self.agents.columns else 1), -1, np.int32)]
        self.warps = [Warp(np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)) for _ in range(count)]
        self.snapshots: list[Snapshot] = []
        self.snapshot_of = np.zeros(len(log), np.int32)
        self.ready: dict[bool, dict[int, Ready]] = {False: {}, True: {}}
        """Whether to all CTAs → thread → what its strong writes publish: its knowledge at its last fence."""
        self.seen: dict[bool, dict[int, Ints]] = {False: {}, True: {}}
        """Whether from all CTAs → thread → what it read by strong reads and learns at its next fence."""

    def threads_of(self, records: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
        """The threads that take part in some records."""
        on = (self.log["lanes"][records][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1
        index, lane = np.nonzero(on)
        return np.unique(self.warp_of[records][index] * LANES + lane)

    def joint_rows(self) -> dict[int, int]:
        """Add the rows that the lanes of a warp know together at accesses where they count as one thread."""
        by_warp = self.semantics.by_warp
        if not by_warp:
            return {}
        records = touches(self.log)
        part = self.log[records]
        on = ((part["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
        there = (on & (part["address"] >= by_warp.start) & (part["address"] < by_warp.stop)).any(axis=1)
        found = {}
        for number in np.unique(self.snapshot_of[records[there]]).tolist():
            known = np.unique(self.snapshots[number].rows).tolist()
            found[number] = known[0]
            if len(known) > 1:
                self.rows.append(np.maximum.reduce([self.rows[index] for index in known]))
                found[number] = len(self.rows) - 1
        return found

    def last_known(self, cta: int) -> Ints:
        """Return what the threads of a CTA know together, up to here."""
        warps = self.warps[cta * self.per_cta : (cta + 1) * self.per_cta]
        known = np.unique(np.concatenate([warp.rows for warp in warps])).tolist()
        together: Ints = np.maximum.reduce([self.rows[row] for row in known])
        return together

    def joined(self, parts: list[tuple[int, npt.NDArray[np.intp], Ints, Ints]]) -> int:
        """Return a new row: what all of them know and have done."""
        known = np.unique(np.concatenate([rows for _, _, rows, _ in parts]))
        row = np.maximum.reduce([self.rows[index] for index in known.tolist()])
        for warp, lanes, _, epochs in parts:
            self.mark(row, warp, lanes, epochs)
        self.rows.append(row)
        return len(self.rows) - 1

    def mark(self, row: Ints, warp: int, lanes: npt.NDArray[np.intp], epochs: Ints) -> None:
        """Mark these epochs as over in the row."""
        columns = self.column_of[warp * LANES + lanes]
        row[columns[columns >= 0]] = epochs[columns >= 0]

    def gather(
        self, number: int, lanes: npt.NDArray[np.intp], known: tuple[Ready | None, Ints | None]
    ) -> tuple[Ready | None, Ints | None]:
        """Return `known` with what these lanes have ready for other CTAs, and have seen of them."""
        threads = (number * LANES + lanes).tolist()
        ready, seen = self.ready[True], self.seen[True]
        return (
            Ready.joined((known[0], *map(ready.get, threads if ready else ()))),
            _join(map(seen.get, threads if seen else ()), known[1]),
        )

    def spread(self, number: int, lanes: npt.NDArray[np.intp], known: tuple[Ready | None, Ints | None]) -> None:
        """Give the lanes what the threads at the barrier have gathered."""
        threads = (number * LANES + lanes).tolist()
        if known[0] is not None:
            self.ready[True].update(dict.fromkeys(threads, known[0]))
        if known[1] is not None:
            self.seen[True].update(dict.fromkeys(threads, known[1]))

    def learn(self, number: int, lane: int, *, wide: bool) -> None:
        """Add what a thread has seen published to its knowledge; what came from other CTAs only at a wide fence."""
        for to_all in (False, True) if wide else (False,):
            news = self.seen[to_all].pop(number * LANES + lane, None)
            if news is not None:
                self.tell(number, [lane], news)

    def tell(self, number: int, lanes: list[int], news: Ints) -> None:
        """Lanes that knew the same share the row of what they know now."""
        state = self.warps[number]
        whose, held = np.array(lanes), state.rows[lanes]
        for known in set(held.tolist()):
            row = np.maximum(self.rows[known], news)
            if (row == self.rows[known]).all():
                continue
            self.rows.append(row)
            state.rows[whose[held == known]] = len(self.rows) - 1
            state.current = -1

    def make_ready(self, number: int, lanes: list[int], *, wide: bool) -> None:
        """Let the strong writes of these threads publish, from now on, what they know and did up to now."""
        state = self.warps[number]
        rows, epochs = state.rows.tolist(), state.epochs.tolist()
        columns = self.column_of[number * LANES : (number + 1) * LANES].tolist()
        known = {index: {id(self.rows[index]): self.rows[index]} for index in set(rows)}
        for lane in lanes:
            thread = number * LANES + lane
            ready = Ready(known[rows[lane]], ((columns[lane], epochs[lane]),) if columns[lane] >= 0 else ())
            for to_all in (False, True) if wide else (False,):
                self.ready[to_all][thread] = ready


def _join(parts: Iterable[Ints | None], known: Ints | None) -> Ints | None:
    """Return what all of them know; threads that met share one row, so most are the same object."""
    rows = {id(row): row for row in (known, *parts) if row is not None}
    return functools.reduce(np.maximum, rows.values()) if rows else None
