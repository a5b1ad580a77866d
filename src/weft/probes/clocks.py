"""What is ordered before what: one pass over the log of one or more CTAs gives every access its place in the order.

Every thread counts its epochs: it enters a new one whenever it hands on what it has done (a barrier, a
bar.warp.sync, a fence). What a thread knows of the others is a row: for each thread the last epoch that is over for
the knower. Threads that leave a barrier together know the same, so they share one row. An access a is ordered before
b exactly if row(b)[thread(a)] >= epoch(a), or both are one thread's.

    barrier, bar.warp.sync   everybody who leaves knows what all who came knew, and what they did before they came
    bar.arrive               hands on, learns nothing
    fence                    what the thread's later strong writes publish is what it knows now
    strong write             publishes at its address; a read-modify-write adds to what is there
    mbarrier                 who arrives publishes there, who finds the phase over learns it
    strong read              learns what is published there: an acquire or an atomic at once, others at the next fence;
                             an atomic whose result nobody uses learns nothing, it may as well have come first
Between CTAs this holds for fences and accesses whose scope is the GPU or more. There a barrier is no fence, but it
carries on what a fence did: each thread fences what it wrote, a barrier, one thread raises the flag; or one thread sees
the flag, a barrier, each thread fences. Rows have a column for each thread that touches memory in the log.

Shuffles, votes, mma and ldmatrix order nothing. A barrier that all threads pass also ends what exited threads did.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from weft.ptx.module import Instruction
from weft.vm.ir import LANES
from weft.vm.mbarrier_word import PHASE_MASK, PHASE_SHIFT
from weft.vm.memory import GLOBAL_BASE

from .record import What
from .taint_slice import Slicer

if TYPE_CHECKING:
    from weft.vm.program import Source

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Semantics:
    """What the instructions of a kernel mean."""

    at: Callable[[int], Instruction | None]
    """Site → the instruction there."""
    used: Container[str]
    """Names of the registers whose values matter to an instruction."""

    def looks(self, ins: Instruction) -> bool:
        """Whether the kernel does anything with what an access finds."""
        return any(reg.name in self.used for reg in ins.written())


def semantics_of(source: "Source") -> Semantics:
    """Of the kernel that a launch ran."""
    users = Slicer(item for item in source.inlined.body if isinstance(item, Instruction)).users
    return Semantics(source.instruction_at.get, users)


@dataclass(frozen=True)
class Snapshot:
    """A warp's lanes between two synchronisations: which row each knows and in which epoch it is."""

    rows: Ints
    epochs: Ints


@dataclass(frozen=True)
class Order:
    """The order of a CTA's events."""

    rows: Ints
    """[row, column]: the last epoch of a thread that is over for who knows the row."""
    column_of: Ints
    """Thread → its column, -1 if it touches nothing."""
    ctas: Ints
    """Numbers of the CTAs in the log, in rising order; threads are counted through them, whole warps each."""
    snapshots: list[Snapshot]
    snapshot_of: Ints
    """Record → index of its warp's snapshot then."""
    phase_of: Ints
    """Record → number of barriers of everybody before it: what lies in different phases is ordered."""
    arrival: dict[tuple[int, int], tuple[int, int]]
    """(record of a copy, lane) → record at which its bytes arrived, and the lane's epoch then."""
    flags: frozenset[tuple[int, int]]
    """Addresses (as `spot` gives them) through which threads synchronise by volatile accesses."""


@dataclass
class _Warp:
    rows: Ints
    epochs: Ints
    current: int = -1
    """Index of the snapshot, -1 once something changed."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """Copies on their way: record, lanes that have not arrived."""


def lanes_in(mask: int) -> npt.NDArray[np.intp]:
    """Lane numbers of a bit mask."""
    return np.flatnonzero((mask >> np.arange(LANES)) & 1)


def spot(cta: int, address: int) -> tuple[int, int]:
    """An address that means the same in all CTAs: shared memory is each CTA's own."""
    return (-1 if address >= GLOBAL_BASE else cta, address)


def touches(log: npt.NDArray[np.void]) -> npt.NDArray[np.intp]:
    """Records that touch memory."""
    kinds = (What.LOAD, What.STORE, What.ATOMIC, What.EXCHANGE, What.COPY, What.TILE)
    return np.flatnonzero(np.isin(log["what"], kinds))


def is_wide(ins: Instruction | None) -> bool:
    """Whether a fence or a strong access holds between CTAs."""
    return ins is not None and ins.mods.get("scope", ins.mods.get("level", "gpu")) not in ("cta", "cluster")


def is_volatile(ins: Instruction | None) -> bool:
    return ins is not None and ins.form.name in ("ld", "st") and ins.has("volatile")


def is_strong(ins: Instruction | None) -> bool:
    """An access that the memory model orders with others of its kind: atomics, ld/st with an order, mbarriers."""
    return ins is not None and (ins.form.name in ("atom", "red") or ordering(ins) != "")


def ordering(ins: Instruction) -> str:
    """acquire, release or both. Arriving at an mbarrier releases, a test that finds its phase over acquires.

    `inval` orders nothing, but it may meet other uses: libcu++ lets one lane do it for its warp, after a match.sync.
    """
    if ins.form.chapter == "mbarrier":
        if ins.has("init"):
            return ""
        return "relaxed" if ins.has("inval") else "acquire" if ins.has("test_wait") else "release"
    return ins.mods.get("order", "")


class _Pass:
    def __init__(self, log: npt.NDArray[np.void], threads: int, semantics: Semantics) -> None:
        self.log, self.semantics = log, semantics
        self.ctas, cta = np.unique(log["cta"], return_inverse=True)
        self.per_cta = -(-threads // LANES)
        count = self.per_cta * len(self.ctas)
        self.cta_of = cta.astype(np.int32)
        self.warp_of = self.cta_of * self.per_cta + log["warp"].astype(np.int32)
        here = touches(log)
        on = (log["lanes"][here][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1
        index, lane = np.nonzero(on)
        actors = np.unique(self.warp_of[here][index] * LANES + lane)
        self.column_of = np.full(count * LANES, -1, np.int32)
        self.column_of[actors] = np.arange(len(actors), dtype=np.int32)
        self.rows: list[Ints] = [np.full(len(actors), -1, np.int32)]
        self.warps = [_Warp(np.zeros(LANES, np.int32), np.zeros(LANES, np.int32)) for _ in range(count)]
        self.snapshots: list[Snapshot] = []
        self.snapshot_of = np.zeros(len(log), np.int32)
        self.phase_of = np.zeros(len(log), np.int32)
        self.phase = 0
        self.arrival: dict[tuple[int, int], tuple[int, int]] = {}
        self.at_barrier: dict[tuple[int, int], list[tuple[int, npt.NDArray[np.intp], Ints, Ints, bool]]] = {}
        self.carried: dict[tuple[int, int], list[Ints | None]] = {}
        """CTA and barrier → what those who came had ready for all, and had seen of all."""
        self.published: dict[tuple[int, int], dict[int, Ints]] = {}
        """Spot → what is published there to a CTA, and (at -1) to all."""
        self.ready: dict[bool, dict[int, Ints]] = {False: {}, True: {}}
        """Whether to all CTAs → thread → what its strong writes publish: its knowledge at its last fence."""
        self.seen: dict[bool, dict[int, Ints]] = {False: {}, True: {}}
        """Whether from all CTAs → thread → what it read by strong reads and learns at its next fence."""
        self.polled: set[tuple[int, int, int, int]] = set()
        self.flags: set[tuple[int, int]] = set()

    def run(self) -> Order:
        what, warp, lanes = self.log["what"].tolist(), self.warp_of.tolist(), self.log["lanes"].tolist()
        for record, kind in enumerate(what):
            self.phase_of[record] = self.phase
            if kind == What.COMPLETE:
                self.complete(record)
                continue
            state = self.warps[warp[record]]
            if state.current < 0:
                state.current = len(self.snapshots)
                self.snapshots.append(Snapshot(state.rows.copy(), state.epochs.copy()))
            self.snapshot_of[record] = state.current
            if kind in (What.ARRIVE, What.WARP_SYNC, What.FENCE):
                self.synchronise(record, kind, warp[record], lanes_in(lanes[record]))
            elif kind == What.COPY:
                state.copies.append((record, lanes[record]))
            elif kind == What.LAND:
                self.land(record, state, lanes[record])
            elif kind != What.TILE:
                self.strong(record, kind, warp[record])
        return Order(
            np.stack(self.rows), self.column_of, self.ctas.astype(np.int32), self.snapshots, self.snapshot_of,
            self.phase_of, self.arrival, frozenset(self.flags),
        )  # fmt: skip

    # -- barriers ------------------------------------------------------------------------------------------------

    def synchronise(self, record: int, kind: int, number: int, lanes: npt.NDArray[np.intp]) -> None:
        state = self.warps[number]
        if len(lanes) == 0:
            return
        wide = kind == What.FENCE and is_wide(self.semantics.at(int(self.log["site"][record])))
        for lane in lanes.tolist():
            self.learn(number, lane, wide=wide)
        if kind == What.ARRIVE:
            row = self.log[record]
            waits = bool(row["bytes"])
            arrived = (number, lanes, state.rows[lanes].copy(), state.epochs[lanes].copy(), waits)
            place = (number // self.per_cta, int(row["number"]))
            self.at_barrier.setdefault(place, []).append(arrived)
            self.carried[place] = self.gather(number, lanes, self.carried.get(place, [None, None]))
        elif kind == What.WARP_SYNC:
            state.rows[lanes] = self.joined([(number, lanes, state.rows[lanes], state.epochs[lanes])])
            self.spread(number, lanes, self.gather(number, lanes, [None, None]))
        else:
            self.make_ready(number, lanes.tolist(), wide=wide)
        state.epochs[lanes] += 1
        state.current = -1

    def joined(self, parts: list[tuple[int, npt.NDArray[np.intp], Ints, Ints]]) -> int:
        """A new row: what all of them know and have done."""
        known = np.unique(np.concatenate([rows for _, _, rows, _ in parts]))
        row = np.maximum.reduce([self.rows[index] for index in known.tolist()])
        for warp, lanes, _, epochs in parts:
            self.mark(row, warp, lanes, epochs)
        self.rows.append(row)
        return len(self.rows) - 1

    def gather(self, number: int, lanes: npt.NDArray[np.intp], known: list[Ints | None]) -> list[Ints | None]:
        """`known` with what these lanes have ready for other CTAs, and have seen of them."""
        tables = (self.ready[True], self.seen[True])
        for index, table in enumerate(tables):
            for thread in (number * LANES + lanes).tolist() if table else ():
                known[index] = _join(table.get(thread), known[index])
        return known

    def spread(self, number: int, lanes: npt.NDArray[np.intp], known: list[Ints | None]) -> None:
        """The lanes go on with what those who met have gathered."""
        for table, row in zip((self.ready[True], self.seen[True]), known, strict=True):
            if row is not None:
                table.update(dict.fromkeys((number * LANES + lanes).tolist(), row))

    def mark(self, row: Ints, warp: int, lanes: npt.NDArray[np.intp], epochs: Ints) -> None:
        """These epochs are over for who knows the row."""
        columns = self.column_of[warp * LANES + lanes]
        row[columns[columns >= 0]] = epochs[columns >= 0]

    def complete(self, record: int) -> None:
        number, everyone = int(self.log["number"][record]), bool(self.log["bytes"][record])
        cta = int(self.cta_of[record])
        came = self.at_barrier.pop((cta, number), [])
        carried = self.carried.pop((cta, number), [None, None])
        if not came:
            return
        row = self.joined([(warp, lanes, rows, epochs) for warp, lanes, rows, epochs, _ in came])
        if everyone:  # the others have exited
            arrived = np.zeros((self.per_cta, LANES), bool)
            for warp, lanes, *_ in came:
                arrived[warp % self.per_cta, lanes] = True
            for within, there in enumerate(arrived):
                warp, gone = cta * self.per_cta + within, np.flatnonzero(~there)
                self.mark(self.rows[row], warp, gone, self.warps[warp].epochs[gone])
            self.phase += len(self.ctas) == 1  # phases of several CTAs are not comparable
        for warp, lanes, _, _, waits in came:
            if waits:
                self.spread(warp, lanes, carried)
                self.warps[warp].rows[lanes] = row
                self.warps[warp].current = -1

    # -- copies --------------------------------------------------------------------------------------------------

    def land(self, record: int, state: _Warp, lanes: int) -> None:
        """Find the copies whose bytes arrive: the oldest of this instruction to these places."""
        row = self.log[record]
        for index, (issue, pending) in enumerate(state.copies):
            here = lanes & pending
            start = self.log[issue]
            if not here or start["site"] != row["site"]:
                continue
            which = lanes_in(here)
            which = which[start["address"][which] == row["address"][which]]
            if len(which) == 0:
                continue
            for lane in which.tolist():
                self.arrival[issue, lane] = (record, int(state.epochs[lane]))
                pending &= ~(1 << lane)
                lanes &= ~(1 << lane)
            state.copies[index] = (issue, pending)
        state.copies = [copy for copy in state.copies if copy[1]]

    # -- fences and strong accesses ------------------------------------------------------------------------------

    def learn(self, number: int, lane: int, *, wide: bool) -> None:
        """What a thread has seen published becomes knowledge; what came from other CTAs only at a wide fence."""
        for to_all in (False, True) if wide else (False,):
            news = self.seen[to_all].pop(number * LANES + lane, None)
            if news is not None:
                self.tell(number, lane, news)

    def tell(self, number: int, lane: int, news: Ints) -> None:
        state = self.warps[number]
        row = np.maximum(self.rows[state.rows[lane]], news)
        self.rows.append(row)
        state.rows[lane] = len(self.rows) - 1
        state.current = -1

    def strong(self, record: int, kind: int, number: int) -> None:
        row = self.log[record]
        ins = self.semantics.at(int(row["site"]))
        volatile = is_volatile(ins)
        if not volatile and not is_strong(ins):
            return
        assert ins is not None
        order, wide, cta = ordering(ins), is_wide(ins), number // self.per_cta
        modifies = kind in (What.ATOMIC, What.EXCHANGE)
        counts = ins.form.chapter == "mbarrier"
        lanes = lanes_in(int(row["lanes"])).tolist()
        if order in ("release", "acq_rel"):
            self.make_ready(number, lanes, wide=wide)
            self.warps[number].epochs[np.array(lanes)] += 1
            self.warps[number].current = -1
        learns = kind != What.STORE and (order == "acquire" if counts else self.semantics.looks(ins))
        levels = ((cta, False), (-1, True)) if wide else ((cta, False),)
        for lane in lanes:
            thread, at = number * LANES + lane, spot(cta, int(row["address"][lane]))
            if counts:  # what others did for a later phase is not known to who finds this one over
                phase = int(row["value"].view(np.uint64)[lane]) >> PHASE_SHIFT & PHASE_MASK
                at = (at[0], at[1] + (phase + 1 << PHASE_SHIFT))
            there = self.published.get(at, {})
            for level, to_all in levels if learns else ():
                news = there.get(level)
                if news is None:
                    continue
                if modifies or order in ("acquire", "acq_rel"):
                    self.tell(number, lane, news)
                else:
                    self.seen[to_all][thread] = np.maximum(news, self.seen[to_all].get(thread, news))
            if kind != What.LOAD and not (counts and order == "acquire"):
                published = dict(there) if modifies else {}
                for level, to_all in levels:
                    mine = self.ready[to_all].get(thread)
                    if mine is not None:
                        published[level] = np.maximum(mine, published.get(level, mine))
                self.published[at] = published
                if volatile and published:
                    self.flags.add(at)
            elif volatile:
                # The same read again with nothing in between: the thread waits for somebody.
                poll = (thread, int(row["site"]), at[1], int(self.warps[number].epochs[lane]))
                if poll in self.polled:
                    self.flags.add(at)
                self.polled.add(poll)

    def make_ready(self, number: int, lanes: list[int], *, wide: bool) -> None:
        """What strong writes publish from now on is what these threads know and did up to now."""
        state = self.warps[number]
        for lane in lanes:
            known = self.rows[state.rows[lane]].copy()
            self.mark(known, number, np.array([lane]), state.epochs[lane : lane + 1])
            for to_all in (False, True) if wide else (False,):
                self.ready[to_all][number * LANES + lane] = known


def _join(a: Ints | None, b: Ints | None) -> Ints | None:
    if a is None or b is None or a is b:
        return b if a is None else a
    return np.maximum(a, b)


def order_of(log: npt.NDArray[np.void], threads: int, semantics: Semantics) -> Order:
    """Work out the order of a log of CTAs of `threads` each."""
    return _Pass(log, threads, semantics).run()
