"""What was done to followed values, line by line: loads, stores, products, sums over several rows or keys."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.ptx.module import Instruction
from weft.shadow.marks import Target, places
from weft.vm.reference.machine import RunningWarp

from .nodes import Event, Nodes, Numbers
from .tags import INPUTS, Flag, Ids, Kind, Tags, among

KINDS = len(Kind)


@dataclass(frozen=True)
class Act:
    """The first time that an instruction did something to values of some kind."""

    what: str
    """`load`, `store`, `multiply`, `add` (weights), `mix` (scores of several rows or keys), `maximum` (of scores, of
    maxima), `exponent`, `mask`, `nan`, `exchange` (between lanes);
    `cut`: a number that is not whole becomes an integer.
    """
    kinds: tuple[Kind, ...]
    """One, or both factors, the lower first; none for `nan`."""
    event: Event
    space: str = ""
    """The state space of a load or store."""
    factor: float = 0.0
    """The constant factor of a product, where it has one."""


@dataclass
class Written:
    """The bytes of an array that one line of a launch writes."""

    array: str
    event: Event
    """The first of its stores."""
    start: int
    stop: int


class FirstLoads:
    """The first load of each element of Q, K and V, in the last launch that loads any."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, sizes, self.launch = nodes, nodes.sizes, 0
        rows = {"q": sizes.q_rows, "k": sizes.kv_rows, "v": sizes.kv_rows}
        self.events: dict[str, Ids] = {stage: np.zeros((rows[stage], sizes.shape.d), np.int32) for stage in INPUTS}
        """0: not loaded."""

    def add(self, w: RunningWarp, ins: Instruction, tags: Tags) -> None:
        """Record that an instruction loads values."""
        if self.launch != self.nodes.launch:
            self.launch = self.nodes.launch
            for events in self.events.values():
                events[:] = 0
        known = (tags["row"] >= 0) & (tags["col"] >= 0)
        event = 0
        for stage, kind in INPUTS.items():
            at = tuple(tags[field][known & (tags["kind"] == kind)] for field in ("row", "col"))
            if (fresh := self.events[stage][at] == 0).any():
                event = event or self.nodes.event(w, ins)
                self.events[stage][at[0][fresh], at[1][fresh]] = event


class Acts:
    """A growing list, with one act for every instruction, kind and launch."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.found: dict[tuple[Any, ...], Act] = {}
        self.written: dict[tuple[str, int, int], Written] = {}
        """By array, launch and line of the PTX."""
        self.fetches, self.reads = FirstLoads(nodes), FirstLoads(nodes)
        """From global memory, also by copies; from shared memory."""

    def moved(self, what: str, w: RunningWarp, ins: Instruction, target: Target, ids: Ids) -> None:
        """Record a load or store of these bytes' nodes (32, size)."""
        if not ids.any():
            return
        moved = self.nodes.tags[np.unique(ids[w.mask])]
        if what == "load" and among(moved["kind"], *INPUTS.values()).any():
            shared = _space(w, target, ids) == "shared"
            (self.reads if shared else self.fetches).add(w, ins, moved)
        for key, kind in self._new(what, moved["kind"], ins):
            self.found[key] = Act(what, (kind,), self._event(w, ins), space=_space(w, target, ids))

    def copied(self, w: RunningWarp, ins: Instruction, ids: Ids) -> None:
        """Record a copy from global to shared memory."""
        self.fetches.add(w, ins, self.nodes.tags[np.unique(ids)])

    def wrote(self, array: str, w: RunningWarp, ins: Instruction, start: int, stop: int) -> None:
        """Record a store to a global array."""
        key = array, self.nodes.launch, ins.line
        if key in self.written:
            known = self.written[key]
            known.start, known.stop = min(known.start, start), max(known.stop, stop)
        else:
            self.written[key] = Written(array, self._event(w, ins), start, stop)

    def cut(self, w: RunningWarp, ins: Instruction, ids: Ids, values: Numbers) -> None:
        """Record a conversion to an integer of followed values that are not whole."""
        lost = w.mask & (ids != 0) & np.isfinite(values) & (values != np.trunc(values))
        for key, kind in self._new("cut", self.nodes.tags["kind"][ids[lost]], ins):
            self.found[key] = Act("cut", (kind,), self._event(w, ins))

    def exchanged(self, w: RunningWarp, ins: Instruction, ids: Ids) -> None:
        """Record that lanes of a warp exchange followed values."""
        for key, kind in self._new("exchange", self.nodes.tags["kind"][ids[w.mask]], ins):
            self.found[key] = Act("exchange", (kind,), self._event(w, ins))

    def masked(self, event: int) -> None:
        """Record a selection between a score and another value."""
        self._once("mask", (Kind.S,), event)

    def multiplied(self, a: Tags, x: Numbers, b: Tags, y: Numbers, event: int) -> None:
        """Record products that are no term of Q·Kᵀ or P·V: scales, rescales, normalisations."""
        pairs = a["kind"].astype(np.int64) * KINDS + b["kind"]
        for pair in np.unique(pairs).tolist():
            low, high = sorted(map(Kind, divmod(pair, KINDS)))
            if high is Kind.CONST or (low, high) in ((Kind.Q, Kind.K), (Kind.V, Kind.P)):
                continue
            at = int(np.argmax(pairs == pair))
            constant = float((x if a["kind"][at] == Kind.CONST else y)[at]) if low is Kind.CONST else 0.0
            if low is not Kind.CONST or constant not in (0.0, 1.0):
                self._once("multiply", (low, high), event, constant)

    def added(self, a: Tags, b: Tags, result: Tags) -> None:
        """Record sums of the newest event's instruction: of weights, and of scores over rows or keys."""
        if (among(a["kind"], Kind.P) | among(b["kind"], Kind.P)).any():
            self._once("add", (Kind.P,), len(self.nodes.events) - 1)
        if (result["flags"] & ~(a["flags"] | b["flags"]) & (Flag.ROWS | Flag.KEYS)).any():
            self._once("mix", (Kind.S,), len(self.nodes.events) - 1)

    def compared(self, a: Tags, b: Tags) -> None:
        """Record that the newest event's instruction takes the larger of scores, of maxima or of others and these."""
        for kind in (Kind.S, Kind.M):
            if (among(a["kind"], kind) | among(b["kind"], kind)).any():
                self._once("maximum", (kind,), len(self.nodes.events) - 1)

    def subtracted(self, event: int) -> None:
        """Record that the maximum of a row is subtracted from a score of it."""
        self._once("exponent", (Kind.X,), event)

    def made_nan(self, w: RunningWarp, ins: Instruction, values: Numbers) -> None:
        """Record results with a NaN: constants as well, since without a visible key there is no score to follow."""
        if np.isnan(values).any() and (key := ("nan", self.nodes.launch, ins.line)) not in self.found:
            self.found[key] = Act("nan", (), self._event(w, ins))

    def _new(self, what: str, kinds: Ids, ins: Instruction) -> Iterator[tuple[tuple[Any, ...], Kind]]:
        """Yield the kinds that this instruction has not done this to yet, with their keys."""
        for kind in map(Kind, np.unique(kinds[kinds != Kind.CONST]).tolist()):
            if (key := (what, kind, self.nodes.launch, ins.line)) not in self.found:
                yield key, kind

    def _event(self, w: RunningWarp, ins: Instruction) -> Event:
        return Event(self.nodes.launch, w.cta.index, w.number, w.steps, ins.opcode, ins.line, ins.place)

    def _once(self, what: str, kinds: tuple[Kind, ...], number: int, factor: float = 0.0) -> None:
        event = self.nodes.events[number]
        key = what, kinds, event.launch, event.ptx_line
        if key not in self.found:
            self.found[key] = Act(what, kinds, event, factor=factor)


def _space(w: RunningWarp, target: Target, ids: Ids) -> str:
    """Return the state space of an access, that of its address where that is generic."""
    found = places(w, target, ids.shape[1])
    return found[0].storage.name if found else target.space
