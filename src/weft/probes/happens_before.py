"""racecheck, second pass: every pair of accesses that nothing orders, from the log of a CTA or of several.

Two accesses to one byte conflict if at least one writes, they are not both atomic, they belong to different threads,
and neither is ordered before the other (`clocks.py`). An asynchronous copy lasts from its instruction to the wait of
the thread that issued it: what is not ordered before the one or after the other meets it. The rows of ldmatrix are
read by other lanes than those that name them, so they conflict with accesses of any lane of the warp.

Only accesses of the same phase (between two barriers of everybody) can conflict; within one, accesses are grouped by
byte, and within a group alike ones (same thread, epoch, instruction, value) count once.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.vm.ir import LANES
from weft.vm.memory import LOCAL_BASE, PARAM_BASE, WINDOW_BYTES

from .clocks import Order, Semantics, is_strong, is_volatile, order_of, touches
from .record import What

PLAIN, VOLATILE, STRONG = range(3)
_NEVER = np.iinfo(np.int32).max
_ATOMIC = np.iinfo(np.int64).min
"""Stands for the values of atomics, and of reads."""
_PAIRS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class Actor:
    """One side of a conflict."""

    site: int
    cta: int
    warp: int
    lanes: int
    record: int


@dataclass(frozen=True)
class Conflict:
    """Two instructions that race, at the first pair of warps that shows it."""

    code: str
    severity: Severity
    earlier: Actor
    later: Actor
    address: int
    size_bytes: int
    """Of the first run of bytes concerned."""
    count: int
    """Pairs of warps."""

    @property
    def across(self) -> bool:
        """Whether it is between two CTAs."""
        return self.earlier.cta != self.later.cta


_Rows = dict[str, npt.NDArray[np.int64]]


def find_conflicts(
    log: npt.NDArray[np.void], threads: int, semantics: Semantics, *, least_address: int = 0
) -> list[Conflict]:
    """All pairs of instructions that race in this log of CTAs of `threads` each, at addresses from the given one on."""
    if len(log) == 0:
        return []
    order = order_of(log, threads, semantics)
    rows, granule = _expanded(log, order, semantics, least_address)
    if not len(rows["key"]):
        return []
    rows = _alike_once(_interesting(rows), log[touches(log)], granule)
    return _grouped(_pairs(rows, order), granule, order)


# -- accesses → rows, one per lane and granule ---------------------------------------------------------------------


def _expanded(log: npt.NDArray[np.void], order: Order, semantics: Semantics, least_address: int) -> tuple[_Rows, int]:
    what = log["what"].astype(np.int64)
    touching = touches(log)
    part = log[touching]
    on = ((part["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    address = part["address"].astype(np.int64)
    on &= address >= least_address
    for base in (LOCAL_BASE, PARAM_BASE):
        on &= ~((address >= base) & (address < base + WINDOW_BYTES))
    index, lane = np.nonzero(on)
    at = address[index, lane]
    size = part["bytes"][index].astype(np.int64)
    granule = int(np.bitwise_or.reduce(at | size)) if len(at) else 1
    granule = min(granule & -granule, 16)
    record = touching[index]
    snapshots = order.snapshot_of[record]
    if not len(record):
        return {"key": np.zeros(0, np.int64)}, granule
    rows_known = np.stack([snapshot.rows for snapshot in order.snapshots])
    epochs = np.stack([snapshot.epochs for snapshot in order.snapshots])
    kinds = _kinds(part["site"], semantics)
    copies = _copied(log, touching, what)
    end, end_epoch = record.copy(), epochs[snapshots, lane].astype(np.int64)
    for position in np.flatnonzero(copies[index] >= 0):
        issue = int(copies[index[position]])
        end[position], end_epoch[position] = order.arrival.get((issue, int(lane[position])), (_NEVER, _NEVER))
    cta = np.searchsorted(order.ctas, part["cta"][index]).astype(np.int64)
    per_cta = len(order.column_of) // len(order.ctas)
    thread = cta * per_cta + part["warp"][index].astype(np.int64) * LANES + lane
    lane_rows: _Rows = {
        "thread": thread,
        "column": order.column_of[thread].astype(np.int64),
        "cta": cta,
        "record": record,
        "end": end,
        "row": rows_known[snapshots, lane].astype(np.int64),
        "epoch": epochs[snapshots, lane].astype(np.int64),
        "end_epoch": end_epoch,
        "site": part["site"][index].astype(np.int64),
        "write": (~np.isin(what[record], (What.LOAD, What.TILE))).astype(np.int64),
        "strength": kinds[index],
        "copy": (copies[index] >= 0).astype(np.int64),
        "collective": (what[record] == What.TILE).astype(np.int64),
    }
    # A volatile access is strong only where it serves to synchronise.
    flags = np.array([address for _, address in order.flags], np.int64)
    lane_rows["strength"][(lane_rows["strength"] == VOLATILE) & np.isin(at, flags)] = STRONG
    pieces = size // granule
    repeat = np.repeat(np.arange(len(at)), pieces)
    within = np.arange(len(repeat)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    rows = {name: column[repeat] for name, column in lane_rows.items()}
    rows["access"], rows["within"] = index[repeat].astype(np.int64), within
    granules = at[repeat] // granule + within
    return _in_phases(rows, granules, order), granule


def _kinds(sites: npt.NDArray[np.int32], semantics: Semantics) -> npt.NDArray[np.int64]:
    """Per access: plain, volatile or strong."""
    by_site = {}
    for site in np.unique(sites).tolist():
        ins = semantics.at(site)
        by_site[site] = VOLATILE if is_volatile(ins) else STRONG if is_strong(ins) else PLAIN
    return np.array([by_site[site] for site in sites.tolist()], np.int64)


def _copied(
    log: npt.NDArray[np.void], touching: npt.NDArray[np.intp], what: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Per access: the record that issued the copy it belongs to, or -1. Its read of the source stands just before."""
    issued = np.full(len(touching), -1, np.int64)
    copies = np.flatnonzero(what[touching] == What.COPY)
    issued[copies] = touching[copies]
    for position in copies.tolist():
        before = position - 1
        if before >= 0 and touching[before] == touching[position] - 1 and what[touching[before]] == What.LOAD:
            same = log["site"][touching[before]] == log["site"][touching[position]]
            if same and log["warp"][touching[before]] == log["warp"][touching[position]]:
                issued[before] = touching[position]
    return issued


def _values(rows: _Rows, part: npt.NDArray[np.void], granule: int) -> npt.NDArray[np.int64]:
    """What each row stores, as a number; unknown values are negative and equal to nothing, but for those of atomics."""
    access, lane = rows["access"], rows["thread"] % LANES
    element = part["element"][access].astype(np.int64)
    unknown = -1 - (rows["record"] * LANES + lane)
    values = np.where((rows["write"] == 0) | (rows["strength"] == STRONG), _ATOMIC, unknown)
    known = np.flatnonzero((element > 0) & (rows["write"] > 0))
    number = np.zeros(len(known), np.uint64)
    size = element[known]
    for byte in range(granule):
        at = rows["within"][known] * granule + byte
        place = at // size * (size * LANES) + lane[known] * size + at % size
        number = number * np.uint64(257) + part["value"][access[known], place]
    values[known] = (number & np.uint64(2**63 - 1)).astype(np.int64)
    return values


def _in_phases(rows: _Rows, granules: npt.NDArray[np.int64], order: Order) -> _Rows:
    """A group's key is phase and granule; a copy belongs to every phase from its issue to its arrival."""
    last = int(order.phase_of.max(initial=0))
    first_phase = order.phase_of[rows["record"]].astype(np.int64)
    last_phase = first_phase.copy()
    copies = np.flatnonzero(rows["copy"])
    ends = rows["end"][copies]
    last_phase[copies] = np.where(ends == _NEVER, last, order.phase_of[np.minimum(ends, len(order.phase_of) - 1)])
    spans = last_phase - first_phase + 1
    repeat = np.repeat(np.arange(len(spans)), spans)
    phase = np.arange(len(repeat)) - np.repeat(np.cumsum(spans) - spans, spans) + first_phase[repeat]
    _, place = np.unique(granules, return_inverse=True)
    rows = {name: column[repeat] for name, column in rows.items()}
    rows["granule"] = granules[repeat]
    rows["key"] = place[repeat].astype(np.int64) * (last + 1) + phase
    return rows


# -- rows → pairs --------------------------------------------------------------------------------------------------


def _interesting(rows: _Rows) -> _Rows:
    """Only groups in which somebody writes, not all are atomic, and more than one thread (or a copy) takes part."""
    order = np.argsort(rows["key"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    _, start, group = np.unique(rows["key"], return_index=True, return_inverse=True)
    written = np.maximum.reduceat(rows["write"], start) > 0
    weak = np.minimum.reduceat(rows["strength"], start) < STRONG
    several = np.minimum.reduceat(rows["thread"], start) != np.maximum.reduceat(rows["thread"], start)
    special = np.maximum.reduceat(rows["copy"] | rows["collective"], start) > 0
    keep = (written & weak & (several | special))[group]
    return {name: column[keep] for name, column in rows.items()}


def _alike_once(rows: _Rows, part: npt.NDArray[np.void], granule: int) -> _Rows:
    """One row for those of a group that cannot differ in what they conflict with. Copies all differ."""
    rows["value"] = _values(rows, part, granule)
    if not len(rows["key"]):
        return rows
    alike = ("key", "thread", "epoch", "row", "site", "value", "write")
    order = np.lexsort([rows["record"], *(rows[name] for name in reversed(alike))])
    columns = np.stack([rows[name][order] for name in alike])
    fresh = np.ones(len(order), bool)
    fresh[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    first = order[fresh]
    return {name: column[first] for name, column in rows.items()}


def _pairs(rows: _Rows, order: Order) -> _Rows:
    """Conflicting pairs as columns of both sides: `a…` is the earlier by record, `b…` the later."""
    found: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]] = []
    if len(rows["key"]):
        _, start, counts = np.unique(rows["key"], return_index=True, return_counts=True)
        group = np.repeat(np.arange(len(start)), counts)
        writers = np.flatnonzero(rows["write"])
        sizes = counts[group[writers]]
        at = 0
        while at < len(writers):
            until = at + max(1, int(np.searchsorted(np.cumsum(sizes[at:]), _PAIRS_AT_ONCE)))
            chosen, reach = writers[at:until], sizes[at:until]
            left = np.repeat(chosen, reach)
            offset = np.arange(len(left)) - np.repeat(np.cumsum(reach) - reach, reach)
            right = start[group[left]] + offset
            found.append(_conflicting(rows, left, right, order))
            at = until
    a = np.concatenate([pair[0] for pair in found]) if found else np.zeros(0, np.intp)
    b = np.concatenate([pair[1] for pair in found]) if found else np.zeros(0, np.intp)
    swap = rows["record"][a] > rows["record"][b] if len(a) else np.zeros(0, bool)
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    names = ("granule", "thread", "cta", "record", "site", "write", "copy", "value", "strength", "collective")
    return {f"{side}{name}": rows[name][chosen] for side, chosen in (("a", a), ("b", b)) for name in names}


def _conflicting(
    rows: _Rows, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp], order: Order
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    # A pair of writers comes twice: keep one. In one instruction, one lane is no pair.
    once = (rows["write"][b] == 0) | (a < b)
    same = rows["thread"][a] == rows["thread"][b]
    lasting = (rows["copy"][a] | rows["copy"][b] | rows["collective"][a] | rows["collective"][b]) > 0
    # Volatile counts as relaxed: beside an atomic it is no race, among themselves they are data that lanes pass around.
    strong = rows["strength"][a] + rows["strength"][b] >= STRONG + VOLATILE
    # The same instruction with the same value: compilers let threads share work that way, and it cannot go wrong.
    alike = (rows["site"][a] == rows["site"][b]) & (rows["value"][a] == rows["value"][b]) & (rows["write"][b] > 0)
    alike &= rows["cta"][a] == rows["cta"][b]
    keep = once & (~same | lasting) & ~strong & ~alike
    # The source and the destination of one copy, and the two sides of one ldmatrix, are one event.
    keep &= ~(same & (rows["record"][a] == rows["record"][b]))
    a, b = a[keep], b[keep]
    ordered = _before(rows, a, b, order) | _before(rows, b, a, order)
    return a[~ordered], b[~ordered]


def _before(rows: _Rows, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp], order: Order) -> npt.NDArray[np.bool_]:
    known: npt.NDArray[np.bool_] = order.rows[rows["row"][b], rows["column"][a]] >= rows["end_epoch"][a]
    own = (rows["thread"][a] == rows["thread"][b]) & (rows["collective"][a] + rows["collective"][b] == 0)
    known |= own & (rows["end"][a] < rows["record"][b])
    return known


# -- pairs → conflicts ---------------------------------------------------------------------------------------------


def _grouped(pairs: _Rows, granule: int, order: Order) -> list[Conflict]:
    """One conflict per code, pair of instructions and kind of neighbourhood (in a warp, between warps or CTAs)."""
    if not len(pairs["arecord"]):
        return []
    a_warp, b_warp = pairs["athread"] // LANES, pairs["bthread"] // LANES
    # A thread that meets its own copy is as wrong as two warps; only lanes of a warp may happen to run in lockstep.
    lockstep = (a_warp == b_warp) & ((pairs["athread"] != pairs["bthread"]) | (pairs["acopy"] + pairs["bcopy"] == 0))
    codes = _codes(pairs)
    groups: dict[tuple[str, int, int, bool, bool], list[int]] = {}
    sites = (pairs["asite"].tolist(), pairs["bsite"].tolist())
    across = (pairs["acta"] != pairs["bcta"]).tolist()
    columns = zip(codes.tolist(), *sites, lockstep.tolist(), across, strict=True)
    for position, key in enumerate(columns):
        groups.setdefault(key, []).append(position)
    found = []
    per_cta = len(order.column_of) // len(order.ctas) // LANES
    for (code, a_site, b_site, inside, _), members in groups.items():
        which = np.array(members)
        first = which[np.lexsort((pairs["agranule"][which], pairs["arecord"][which], pairs["brecord"][which]))[0]]
        warps = (a_warp[first], b_warp[first])
        mine = which[(a_warp[which] == warps[0]) & (b_warp[which] == warps[1])]
        for side in ("arecord", "brecord"):
            mine = mine[pairs[side][mine] == pairs[side][first]]
        equal = bool((pairs["avalue"][which] == pairs["bvalue"][which]).all()) and code == "R101"
        volatile = bool(((pairs["astrength"][which] != PLAIN) & (pairs["bstrength"][which] != PLAIN)).all())
        severity = Severity.INFO if equal else Severity.WARNING if inside or volatile else Severity.ERROR
        actors = [
            Actor(
                site,
                int(order.ctas[warp // per_cta]),
                int(warp) % per_cta,
                _mask(pairs[f"{side}thread"][mine]),
                int(pairs[f"{side}record"][first]),
            )
            for side, site, warp in (("a", a_site, warps[0]), ("b", b_site, warps[1]))
        ]
        granules = np.unique(pairs["agranule"][mine])
        run = int(np.argmax(np.diff(granules, append=granules[-1] + 2) != 1)) + 1
        count = len(np.unique(np.stack([a_warp[which], b_warp[which]]), axis=1).T)
        found.append(Conflict(code, severity, actors[0], actors[1], int(granules[0]) * granule, run * granule, count))
    return sorted(found, key=lambda c: (c.later.record, c.code, c.earlier.record))


def _mask(threads: npt.NDArray[np.int64]) -> int:
    return sum(1 << lane for lane in np.unique(threads % LANES).tolist())


def _codes(pairs: _Rows) -> npt.NDArray[np.str_]:
    """R101 to R103 by who writes; R104 and R105 where a copy was under way when the later access came."""
    plain = np.where(pairs["awrite"] & pairs["bwrite"], "R101", np.where(pairs["awrite"], "R102", "R103"))
    touched = np.where(pairs["awrite"], "R104", "R105")
    return np.where(pairs["acopy"] > 0, touched, plain)
