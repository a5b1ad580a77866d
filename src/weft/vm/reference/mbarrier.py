"""Barriers in shared memory (PTX ISA 9.7.13.15): counts in a 64-bit word, unpacked and packed in Python."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from weft.ptx.module import Discard, Instruction

from ..mbarrier_word import (
    COUNT_MASK,
    INVALID,
    MARK,
    MARK_SHIFT,
    MOST_BYTES,
    MOST_COUNT,
    NEXT_SHIFT,
    PHASE_MASK,
    PHASE_SHIFT,
    waiting_words,
)
from .access import locate, shared_addresses
from .bulk_queue import deliver, next_load
from .machine import Arrival, Cta, RunningWarp
from .memory import carry_out
from .spaces import SpaceStorage
from .warp import Lanes


@dataclass(frozen=True)
class _Word:
    """The fields of the 64 bits."""

    missing: int
    following: int
    phase: int

    def arrived(self, count: int, pending: int) -> "_Word":
        """Return the word after `count` arrivals; the last one of a phase begins the next if no byte is pending."""
        if self.missing > count or pending:
            return replace(self, missing=self.missing - count)
        return _Word(self.following, self.following, self.phase + 1 & PHASE_MASK)

    @property
    def bits(self) -> int:
        return MARK << MARK_SHIFT | self.phase << PHASE_SHIFT | self.following << NEXT_SHIFT | self.missing


def _read(bits: int) -> _Word | None:
    if bits >> MARK_SHIFT != MARK:
        return None
    return _Word(bits & COUNT_MASK, bits >> NEXT_SHIFT & COUNT_MASK, bits >> PHASE_SHIFT & PHASE_MASK)


def _load(region: SpaceStorage, at: int) -> int:
    return int.from_bytes(region.data[at : at + 8].tobytes(), "little")


def _store(region: SpaceStorage, at: int, bits: int) -> None:
    region.data[at : at + 8] = np.frombuffer(bits.to_bytes(8, "little"), np.uint8)


def _places(w: RunningWarp, ins: Instruction, name: str = "a") -> dict[int, tuple[SpaceStorage, int]]:
    """Return lane → address of its mbarrier; lanes with an invalid address are reported and left out."""
    where: dict[int, tuple[SpaceStorage, int]] = {}
    for hit in locate(w, ins, "shared", shared_addresses(w, ins, name), 8, write=True):
        where |= {int(lane): (hit.region, int(hit.at[lane])) for lane in np.flatnonzero(hit.lanes)}
    return dict(sorted(where.items()))


def _report(w: RunningWarp, ins: Instruction, lane: int) -> None:
    lanes = np.arange(32) == lane
    w.report("S308", "no initialised mbarrier there, or more arrivals than it expects", ins, lanes)


def _mbarrier(w: RunningWarp, ins: Instruction) -> None:
    if ins.has("init"):
        _init(w, ins)
    elif ins.has("inval"):
        for lane, (region, at) in _places(w, ins).items():
            if w.cta.pending_bytes.get(at, 0):
                words = f"it is given up while its phase misses {missing_at(w.cta, at)}"
                w.report("S309", f"mbarrier: {words}", ins, np.arange(32) == lane)
            _store(region, at, INVALID)
    elif ins.has("test_wait") or ins.has("try_wait"):
        _test(w, ins)
    elif ins.has("expect_tx") or ins.has("complete_tx"):
        _count_bytes(w, ins)
        if ins.form.returns:
            _arrive(w, ins)
    elif ins.has("pending_count"):
        w.dst(ins, (w.src(ins, "state") & np.uint64(COUNT_MASK)).astype(np.uint32))
    else:
        _arrive(w, ins)


def _init(w: RunningWarp, ins: Instruction) -> None:
    counts = w.src(ins, "count")
    for lane, (region, at) in _places(w, ins).items():
        count = int(counts[lane])
        if 1 <= count <= MOST_COUNT:
            _store(region, at, _Word(count, count, 0).bits)
            w.cta.pending_bytes[at] = 0
        else:
            _store(region, at, INVALID)
            _report(w, ins, lane)


def _arrive(w: RunningWarp, ins: Instruction) -> None:
    w.cta.fruitless = 0
    counts = w.src(ins, "count") if ins.find("count") is not None else np.ones(32, np.uint32)
    before = np.zeros(32, np.uint64)
    for lane, (region, at) in _places(w, ins).items():
        count, bits = int(counts[lane]), _load(region, at)
        before[lane] = bits
        word = _read(bits)
        if word is not None and ins.has("arrive_drop"):
            word = replace(word, following=word.following - count)
        most = -1 if word is None else word.missing - ins.has("noComplete")
        if word is None or word.following < 0 or not 1 <= count <= most:
            _report(w, ins, lane)
        else:
            after = word.arrived(count, w.cta.pending_bytes[at])
            _store(region, at, after.bits)
            if after.phase != word.phase and next_load(w.cta, at) is not None:
                _report_early(w, ins, lane)
    if not isinstance(ins.operand("d"), Discard):
        w.dst(ins, before)


def _count_bytes(w: RunningWarp, ins: Instruction) -> None:
    """Add bytes that a phase waits for, or subtract them; the last one may end the phase."""
    w.cta.fruitless = 0
    _add_bytes(w, ins, w.src(ins, "bytes"), 1 if ins.has("expect_tx") else -1, _places(w, ins))


def complete(w: RunningWarp, ins: Instruction, size: int) -> None:
    """Subtract the bytes of an asynchronous store at the mbarrier that it names."""
    w.cta.fruitless = 0
    _add_bytes(w, ins, np.full(32, size, np.uint32), -1, _places(w, ins, "mbar"))


def _add_bytes(
    w: RunningWarp, ins: Instruction, amounts: Lanes, sign: int, places: dict[int, tuple[SpaceStorage, int]]
) -> None:
    for lane, (region, at) in places.items():
        word = _read(_load(region, at))
        total = w.cta.pending_bytes.get(at, 0) + sign * int(amounts[lane])
        if word is None or abs(total) > MOST_BYTES or int(amounts[lane]) > MOST_BYTES:
            _report(w, ins, lane)
            continue
        w.cta.pending_bytes[at] = total
        if sign < 0 and not word.missing:
            _store(region, at, word.arrived(0, total).bits)


def _test(w: RunningWarp, ins: Instruction) -> None:
    by_parity = ins.has("parity")
    states = w.src(ins, "odd" if by_parity else "state")
    over = np.zeros(32, bool)
    first: dict[int, int] = {}
    places = _places(w, ins)
    for lane, (_, at) in reversed(places.items()):
        first[at] = lane
    for at, lane in sorted(first.items(), key=lambda item: item[1]):
        _settle(w, at)
        _deliver(w, at, int(states[lane]), by_parity=by_parity)
    for lane, (region, at) in places.items():
        word = _read(_load(region, at))
        if word is None:
            _report(w, ins, lane)
        else:
            over[lane] = _is_over(word, int(states[lane]), by_parity=by_parity)
    w.gives_way = not over[w.mask].all()
    if over.any():
        w.cta.fruitless = 0
    for lane in (lane for lane in places if not over[lane]):
        w.waits_at = places[lane][1]
        break
    w.dst(ins, over, "p")


def _is_over(word: _Word, state: int, *, by_parity: bool) -> bool:
    if by_parity:
        return word.phase % 2 != state % 2
    return word.phase != state >> PHASE_SHIFT & PHASE_MASK


def _deliver(w: RunningWarp, at: int, state: int, *, by_parity: bool) -> None:
    """Carry out bulk loads whose bytes the mbarrier counts, one after the other, until the phase is over."""
    while True:
        word, copy = _read(_load(w.cta.shared, at)), next_load(w.cta, at)
        if word is None or copy is None or _is_over(word, state, by_parity=by_parity):
            return
        deliver(copy)
        total = w.cta.pending_bytes.get(at, 0) - copy.bytes
        if abs(total) > MOST_BYTES:
            _report(copy.warp, copy.call, copy.lane)
            continue
        w.cta.pending_bytes[at] = total
        if word.missing:
            continue
        after = word.arrived(0, total)
        _store(w.cta.shared, at, after.bits)
        other = next_load(w.cta, at)
        if after.phase != word.phase and other is not None:
            _report_early(other.warp, other.call, other.lane)


def _report_early(w: RunningWarp, ins: Instruction, lane: int) -> None:
    words = "the phase of its mbarrier ends before this copy is complete: too few bytes are expected"
    w.report("S309", words, ins, np.arange(32) == lane)


def _settle(w: RunningWarp, at: int) -> None:
    """Carry out the copies whose arrival the mbarrier awaits, because a thread tests it, and count them."""
    due = [arrival for arrival in w.cta.arrivals if arrival.at == at]
    w.cta.arrivals = [arrival for arrival in w.cta.arrivals if arrival.at != at]
    w.cta.fruitless = 0 if due else w.cta.fruitless
    for arrival in due:
        for queue in (*arrival.warp.groups[arrival.lane], arrival.warp.uncommitted[arrival.lane]):
            for copy in [copy for copy in queue if any(copy is one for one in arrival.copies)]:
                carry_out(arrival.warp, copy)
                queue[:] = [other for other in queue if other is not copy]
        word = _read(_load(w.cta.shared, at))
        if word is None or not word.missing:
            _report(arrival.warp, arrival.call, arrival.lane)
        else:
            _store(w.cta.shared, at, word.arrived(1, w.cta.pending_bytes[at]).bits)


def _cp(w: RunningWarp, ins: Instruction) -> None:
    """Execute cp.async.mbarrier.arrive: without .noinc the mbarrier expects one more arrival, this one."""
    for lane, (region, at) in _places(w, ins).items():
        word = _read(_load(region, at))
        if not ins.has("noinc"):
            if word is None or word.missing == MOST_COUNT:
                _report(w, ins, lane)
                continue
            _store(region, at, replace(word, missing=word.missing + 1).bits)
        copies = (*(copy for group in w.groups[lane] for copy in group), *w.uncommitted[lane])
        w.cta.arrivals.append(Arrival(w, lane, at, copies, ins))


def missing_at(cta: Cta, at: int) -> str:
    """Return what the phase of the mbarrier at `at` misses, in words."""
    word = _read(_load(cta.shared, at))
    return waiting_words(word.missing if word is not None else 0, cta.pending_bytes.get(at, 0))


EXECUTE: dict[str, Callable[[RunningWarp, Instruction], None]] = {
    "mbarrier": _mbarrier,
    "cp": _cp,
}
