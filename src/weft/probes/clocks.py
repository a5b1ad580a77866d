"""Happens-before order: one pass over the log of one or more CTAs gives every access its position in the order.

Every thread counts its epochs: it enters a new one whenever it publishes what it has done (a barrier, a
bar.warp.sync, a fence). What a thread knows about the others is a row (a vector clock): for each thread the last epoch
that is over for this one. Threads that leave a barrier together know the same, so they share one row. An access a is
ordered before b exactly if row(b)[thread(a)] >= epoch(a), or both belong to one thread.

    barrier, bar.warp.sync   every thread that leaves knows what all arrivals knew, and what they did before arriving
    bar.arrive               publishes, learns nothing
    fence                    the thread's later strong writes publish what it knows now
    strong write             publishes at its address; a read-modify-write adds to what is there
    barrier of a cluster     as an mbarrier that all its CTAs share
    mbarrier                 a thread that arrives publishes there; a thread that finds the phase complete learns it;
                             where copies arrive, it learns only that they are complete (`copy_clock.py`)
    bulk copy, wgmma         an agent: complete for whoever observes its completion (`agent_clock.py`)
    fence.proxy.async        what the thread knows now is fenced: agents of threads that know of the fence may access it
    group of several warps   a warp that is released knows what all its warps had published (`group_clock.py`)
    strong read              learns what is published there: an acquire or an atomic at once, others at the next fence;
                             an atomic whose result is unused learns nothing: it may as well have come first;
                             for the places in `observed` it also knows, at once, the writes that it observed
                             (`observation.py`)
Between CTAs this holds for fences and accesses whose scope is the GPU or more. There a barrier is no fence, but it
passes on what a fence did: each thread fences what it wrote, a barrier, one thread sets the flag; or one thread sees
the flag, a barrier, each thread fences. Rows have a column for each thread that accesses memory in the log. In a log
with agents they have all columns twice: what is known, then what is known to be fenced for agents.

Shuffles, votes, mma and ldmatrix order nothing. A barrier that all threads pass also ends what exited threads did.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from weft.ptx.module import Instruction
from weft.vm.ir import LANES

from .agent_clock import OF_AGENTS, Agent
from .events import What
from .group_clock import GroupClock, Key
from .knowledge import Knowledge
from .map_clock import OF_MAPS
from .observation import Ints, Spot, StrongAccess
from .order import Order, Snapshot, decides, lanes_in, phase_spots, spot
from .ready import Ready
from .semantics import Semantics, is_volatile, ordering

_Levels = tuple[tuple[int, bool], ...]
"""The CTAs that can see an access (-1: all), and whether these are all."""
_OF_COPIES = (What.COPY, What.GROUP, What.WAIT, What.ATTACH)


class _Pass(Knowledge):
    def __init__(self, log: npt.NDArray[np.void], threads: int, semantics: Semantics, observed: Iterable[Spot]) -> None:
        super().__init__(log, threads, semantics, observed)
        self.groups = GroupClock(semantics.by_warp)
        self.sources: frozenset[int] = frozenset()
        """In a log whose only loads are those of copies: their sites."""
        if self.copies.columns and not (log["what"] == What.COPY).any():
            self.sources = frozenset(site for site in np.unique(log["site"]).tolist() if semantics.copies(site))
        self.multiplying: dict[int, Agent] = {}
        """Warp → its products, while it does nothing else."""
        self.phase_of = np.zeros(len(log), np.int32)
        self.phase = 0
        self.at_barrier: dict[tuple[int, int], list[tuple[int, npt.NDArray[np.intp], Ints, Ints, bool]]] = {}
        self.carried: dict[tuple[int, int], tuple[Ready | None, Ints | None]] = {}
        """CTA and barrier → what the threads that arrived had ready for all CTAs, and had seen of them."""
        self.published: dict[tuple[int, int], dict[int, Ints]] = {}
        """Spot → what is published there to a CTA, and (at -1) to all."""
        self.polled: set[tuple[int, int, int, int]] = set()
        self.flags: set[tuple[int, int]] = set()
        self.chains = True

    def run(self) -> Order:
        what, warp, lanes = self.log["what"].tolist(), self.warp_of.tolist(), self.log["lanes"].tolist()
        site = self.log["site"].tolist()
        sites, index = np.unique(self.log["site"], return_inverse=True)
        strong = np.array([self.semantics.kind(site) for site in sites.tolist()])[index].tolist()
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
            if self.products[record]:
                self.multiply(record, warp[record])
                continue
            self.multiplying.pop(warp[record], None)
            if kind == What.STORE and record in self.maps.writers:
                ins = self.semantics.at(site[record])
                together = ins is not None and ins.facts.fences_map == "release"
                self.maps.store(record, self.log[record], warp[record], state.epochs, together=together)
            if kind in (What.ARRIVE, What.WARP_SYNC, What.FENCE):
                self.synchronise(record, kind, warp[record], lanes_in(lanes[record]))
            elif kind in OF_AGENTS:
                self.follow_agent(record, kind, warp[record], lanes_in(lanes[record]))
            elif kind in OF_MAPS:
                self.follow_map(record, kind, warp[record], lanes_in(lanes[record]).tolist())
            elif kind == What.PROXY_FENCE:
                self.fence_proxy(warp[record], lanes_in(lanes[record]))
            elif kind in _OF_COPIES:
                self.follow_copy(record, kind, warp[record], lanes[record])
            elif kind == What.LOAD and site[record] in self.sources:
                self.copies.issue(record, warp[record], lanes_in(lanes[record]))
            elif strong[record] and kind != What.TILE:
                self.strong(record, kind, warp[record])
        if self.agents.columns:
            every = np.unique(np.concatenate([warp.rows for warp in self.warps])).tolist()
            self.agents.finish(
                lambda number, lane: self.rows[self.warps[number].rows[lane]], [self.rows[row] for row in every]
            )
        joint_rows = self.joint_rows()
        return Order(
            np.stack(self.rows),
            self.column_of,
            self.ctas.astype(np.int32),
            self.snapshots,
            self.snapshot_of,
            self.phase_of,
            self.copies,
            self.agents,
            self.maps,
            frozenset(self.flags),
            self.observation,
            joint_rows,
            self.chains,
            tuple(self.last_known(cta) for cta in range(len(self.ctas)) if self.semantics.one_cluster),
        )

    # -- barriers ------------------------------------------------------------------------------------------------

    def synchronise(self, record: int, kind: int, number: int, lanes: npt.NDArray[np.intp]) -> None:
        state = self.warps[number]
        if len(lanes) == 0:
            return
        wide = kind == What.FENCE and self.semantics.is_wide(self.semantics.at(int(self.log["site"][record])))
        if self.seen[False] or self.seen[True]:
            for lane in lanes.tolist():
                self.learn(number, lane, wide=wide)
        if kind == What.ARRIVE:
            waits = bool(self.log["bytes"][record])
            arrived = (number, lanes, state.rows[lanes], state.epochs[lanes], waits)
            place = (number // self.per_cta, int(self.log["number"][record]))
            self.at_barrier.setdefault(place, []).append(arrived)
            self.carried[place] = self.gather(number, lanes, self.carried.get(place, (None, None)))
        elif kind == What.WARP_SYNC:
            state.rows[lanes] = self.joined([(number, lanes, state.rows[lanes], state.epochs[lanes])])
            self.spread(number, lanes, self.gather(number, lanes, (None, None)))
            self.groups.meet(number // self.per_cta, number % self.per_cta)
        else:
            self.make_ready(number, lanes.tolist(), wide=wide)
        state.epochs[lanes] += 1
        state.current = -1

    def complete(self, record: int) -> None:
        number, everyone = int(self.log["number"][record]), bool(self.log["bytes"][record])
        cta = int(self.cta_of[record])
        came = self.at_barrier.pop((cta, number), [])
        carried = self.carried.pop((cta, number), (None, None))
        if not came:
            return
        row = self.joined([(warp, lanes, rows, epochs) for warp, lanes, rows, epochs, _ in came])
        if everyone:  # the others have exited
            arrived = np.zeros((self.per_cta, LANES), bool)
            for warp, lanes, *_ in came:
                arrived[warp % self.per_cta, lanes] = True
            for within in np.flatnonzero(~arrived.all(axis=1)).tolist():
                warp, gone = cta * self.per_cta + within, np.flatnonzero(~arrived[within])
                self.mark(self.rows[row], warp, gone, self.warps[warp].epochs[gone])
                own = np.unique(self.warps[warp].rows[gone[self.column_of[warp * LANES + gone] >= 0]])
                self.chains &= all(bool((self.rows[known] <= self.rows[row]).all()) for known in own.tolist())
            if len(self.ctas) == 1:  # phases of several CTAs are not comparable
                self.phase += 1
                self.copies.meet(record, self.rows[row])
                self.agents.meet(record, self.rows[row])
        for warp, lanes, _, _, waits in came:
            if waits:
                self.spread(warp, lanes, carried)
                self.warps[warp].rows[lanes] = row
                self.warps[warp].current = -1

    # -- copies --------------------------------------------------------------------------------------------------

    def follow_copy(self, record: int, kind: int, number: int, lanes: int) -> None:
        if kind == What.COPY:
            self.copies.issue(record, number, lanes_in(lanes))
        elif kind == What.GROUP:
            self.copies.group(number, lanes_in(lanes))
        elif kind == What.WAIT:
            pending, epochs = int(self.log["number"][record]), self.warps[number].epochs
            self.copies.wait(record, number, lanes_in(lanes), pending, epochs)
        else:
            self.copies.attach(number, lanes_in(lanes), self.log["address"][record])

    def arrive_by_copies(self, record: int, number: int) -> None:
        """Publish that the copies before a cp.async.mbarrier.arrive are complete: the mbarrier counts its arrivals."""
        row, cta = self.log[record], number // self.per_cta
        for at, lanes in phase_spots(row, lanes_in(int(row["lanes"])).tolist(), cta).items():
            arrivals = (self.copies.arrive(number * LANES + lane, int(row["address"][lane])) for lane in lanes)
            marks = [mark for mark in arrivals if mark is not None]
            if marks:
                published = self.published.setdefault(at, {})
                news = published.get(cta, self.rows[0]).copy()
                for column, arrival in marks:
                    news[column] = max(int(news[column]), arrival)
                published[cta] = news

    # -- agents --------------------------------------------------------------------------------------------------

    def follow_agent(self, record: int, kind: int, number: int, lanes: npt.NDArray[np.intp]) -> None:
        if kind == What.BULK:
            self.agents.issue_bulk(record, number)
        elif kind == What.LANDED:
            cta = number // self.per_cta
            arrival = self.agents.land(record, cta)
            if arrival is not None:
                published = self.published.setdefault(arrival.place, {})
                news = published.get(cta, self.rows[0]).copy()
                news[arrival.column] = max(int(news[arrival.column]), arrival.number)
                published[cta] = news
        elif kind in (What.BULK_GROUP, What.PRODUCT_GROUP):
            self.agents.close_group(record, number, lanes)
        else:
            for waiting, column, done in self.agents.wait(record, number, lanes):
                news = self.rows[0].copy()
                news[column] = done
                self.tell(number, waiting, news)

    def send(self, record: int, kind: int, number: int) -> None:
        """An asynchronous store: whoever finds the phase over that counts its bytes knows what its thread did."""
        row = self.log[record]
        if kind not in (What.ATOMIC, What.EXCHANGE) or not row["element"]:  # the store itself
            return
        lanes = lanes_in(int(row["lanes"]))
        state = self.warps[number]
        for at, some in phase_spots(row, lanes.tolist(), int(self.owner_of[record])).items():
            published = self.published.setdefault(at, {})
            news = published.get(-1, self.rows[0]).copy()
            self.mark(news, number, np.array(some), state.epochs[some])
            published[-1] = news
        state.epochs[lanes] += 1
        state.current = -1

    def follow_map(self, record: int, kind: int, number: int, lanes: list[int]) -> None:
        """Follow a use of a tensor map, or a fence of its proxy."""
        state = self.warps[number]
        if kind == What.MAP_RELEASE:
            self.maps.release([number * LANES + lane for lane in lanes])
            return
        for lane in lanes:
            address, row = int(self.log["address"][record][lane]), self.rows[state.rows[lane]]
            if kind == What.MAP:
                self.maps.use(record, address, int(row[self.maps.columns[address]]))
                continue
            found = self.maps.acquired(address, number * LANES + lane, self.column_of, row)
            if found is not None:
                news = self.rows[0].copy()
                news[found[0]] = found[1]
                self.tell(number, [lane], news)

    def multiply(self, record: int, number: int) -> None:
        """A warp multiplies: the product comes after what any of its lanes knows and did before."""
        if number in self.multiplying:
            self.agents.issued[record] = self.multiplying[number]
            return
        state, every = self.warps[number], np.arange(LANES)
        row = self.joined([(number, every, state.rows, state.epochs)])
        self.multiplying[number] = self.agents.issue_product(record, number, row)
        state.epochs += 1
        state.current = -1

    def fence_proxy(self, number: int, lanes: npt.NDArray[np.intp]) -> None:
        """What these lanes know and did is fenced for agents from now on."""
        state = self.warps[number]
        if len(self.rows[0]) > self.width:
            for known in np.unique(state.rows[lanes]).tolist():
                mine = lanes[state.rows[lanes] == known]
                row = self.rows[known].copy()
                row[self.width :] = row[: self.width]
                self.mark(row[self.width :], number, mine, state.epochs[mine])
                self.rows.append(row)
                state.rows[mine] = len(self.rows) - 1
        state.epochs[lanes] += 1
        state.current = -1

    # -- fences and strong accesses ------------------------------------------------------------------------------

    def strong(self, record: int, kind: int, number: int) -> None:
        row = self.log[record]
        ins = self.semantics.at(int(row["site"]))
        assert ins is not None
        volatile = is_volatile(ins)
        order, wide, cta = ordering(ins), self.semantics.is_wide(ins), number // self.per_cta
        modifies = kind in (What.ATOMIC, What.EXCHANGE)
        if ins.facts.signals:
            self.send(record, kind, number)
            return
        counts = ins.facts.counts
        if counts and ins.facts.settles:
            self.arrive_by_copies(record, number)
            return
        lanes = lanes_in(int(row["lanes"])).tolist()
        if order in ("release", "acq_rel"):
            self.make_ready(number, lanes, wide=wide)
            self.warps[number].epochs[np.array(lanes)] += 1
            self.warps[number].current = -1
        if self.semantics.by_warp:
            key = self.groups.key(cta, number % self.per_cta, int(row["address"][lanes[0]]))
            if key is not None:
                self.meet_group(key, kind, ins, number, lanes)
                return
        learns = kind != What.STORE and (order == "acquire" if counts else self.semantics.looks(ins))
        levels = ((cta, False), (-1, True)) if wide else ((cta, False),)
        if counts:
            home = int(self.owner_of[record])
            if ins.facts.group == "cluster":  # its CTAs share the barrier: no CTA has a number below -1
                home = -2 - self.semantics.cluster_with(int(self.ctas[cta]))
            for at, there_lanes in phase_spots(row, lanes, home).items():
                if learns:
                    self.find_over(number, there_lanes, at, levels)
                elif kind != What.LOAD and order != "acquire":
                    self.arrive(number, there_lanes if modifies else there_lanes[-1:], at, levels, modifies=modifies)
            return
        for lane in lanes:
            thread, at = number * LANES + lane, spot(int(self.owner_of[record]), int(row["address"][lane]))
            if self.observation.columns:
                counted = not volatile and (wide or at[0] >= 0)
                seen = StrongAccess(at, record, lane, learns and counted, kind != What.LOAD, modifies, counted)
                self.observe(seen, number)
            there = self.published.get(at, {})
            for level, to_all in levels if learns else ():
                news = there.get(level)
                if news is None:
                    continue
                if modifies or order in ("acquire", "acq_rel"):
                    self.tell(number, [lane], news)
                else:
                    self.seen[to_all][thread] = np.maximum(news, self.seen[to_all].get(thread, news))
            if kind != What.LOAD:
                published = dict(there) if modifies else {}
                for level, to_all in levels:
                    ready = self.ready[to_all].get(thread)
                    if ready is not None:
                        mine = ready.row()
                        published[level] = np.maximum(mine, published.get(level, mine))
                self.published[at] = published
                if volatile and published:
                    self.flags.add(at)
            elif volatile:
                # The same read again with nothing in between: the thread waits for another thread.
                poll = (thread, int(row["site"]), at[1], int(self.warps[number].epochs[lane]))
                if poll in self.polled:
                    self.flags.add(at)
                self.polled.add(poll)

    def meet_group(self, key: Key, kind: int, ins: Instruction, number: int, lanes: list[int]) -> None:
        """Lanes use the barrier of a cooperative group of several warps."""
        warp = number % self.per_cta
        if kind == What.LOAD:
            for mask, news in self.groups.look(key, warp, sum(1 << lane for lane in lanes)):
                self.tell(number, lanes_in(mask).tolist(), news)
            return
        ready = self.ready[False].get(number * LANES + lanes[0])
        mine = ready.row() if ready is not None else None
        if ins.has("and"):
            self.groups.clear(key, warp, mine)
            return
        learned = self.groups.arrive(key, warp, mine)
        if learned is not None and self.semantics.looks(ins):
            self.tell(number, lanes, learned)

    def find_over(self, number: int, lanes: list[int], at: Spot, levels: _Levels) -> None:
        """Lanes find a phase of an mbarrier over: they know what the threads that arrived had published."""
        there = self.published.get(at, {})
        for level, _ in levels:
            if level in there:
                self.tell(number, lanes, there[level])

    def arrive(self, number: int, lanes: list[int], at: Spot, levels: _Levels, *, modifies: bool) -> None:
        """Lanes arrive for a phase of an mbarrier, and publish there together what each has ready."""
        published = dict(self.published.get(at, {})) if modifies else {}
        for level, to_all in levels:
            ready = Ready.joined(self.ready[to_all].get(number * LANES + lane) for lane in lanes)
            if ready is not None:
                mine = ready.row()
                published[level] = np.maximum(mine, published.get(level, mine))
        self.published[at] = published

    def observe(self, access: StrongAccess, number: int) -> None:
        news = self.observation.after(access, self.rows[self.warps[number].rows[access.lane]])
        if news is not None:
            self.tell(number, [access.lane], news)


Orders = dict[tuple[bytes, ...], Order]
"""The parts of a CTA's log that determine its order → that order."""


def order_of(
    log: npt.NDArray[np.void],
    threads: int,
    semantics: Semantics,
    known: Orders | None = None,
    *,
    observed: Iterable[Spot] = (),
) -> Order:
    """Return the order of a log of CTAs of `threads` each, with what is observed at the places `observed`.

    With `known`, for logs of one CTA of a launch: CTAs that did the same in the same sequence have the same order.
    """
    if known is None:
        return _Pass(log, threads, semantics, observed).run()
    key = decides(log, semantics)
    if key not in known:
        known[key] = _Pass(log, threads, semantics, ()).run()
    return replace(known[key], ctas=np.unique(log["cta"]).astype(np.int32))
