"""racecheck, second pass: every pair of accesses that nothing orders, from the log of a CTA or of several.

Two accesses to one byte conflict if at least one writes, they are not both atomic, they belong to different threads,
and neither is ordered before the other (`clocks.py`). An asynchronous copy lasts from its instruction to the wait of
the thread that issued it, or to the phase of an mbarrier at which it arrives: an access that is neither ordered before
its start nor after its end conflicts with it. The rows of ldmatrix are read by other lanes than those that give their
addresses, so they conflict with accesses of any lane of the warp.

Only accesses of the same phase (between two barriers of all threads) can conflict; within one, accesses are grouped by
byte, and within a group equal ones (same thread, epoch, instruction, value) count once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from weft.core.finding_codes import Severity
from weft.vm.ir import LANES
from weft.vm.memory import GLOBAL_BASE

from .agent_codes import left_over, recoded, unfenced_maps
from .barrier_place import barrier_behind
from .clocks import Orders, order_of
from .conflict import Actor, Conflict
from .copy_steps import missing_step
from .crowds import thinned as without_crowds
from .crowds import unsettled
from .events import What
from .mbarrier_inits import is_published
from .observation import Spot
from .order import Order, decides, spot, thinned, touches, within
from .peers import unsafe_peers
from .proxies import before_agents
from .race_rows import PLAIN, STRONG, VOLATILE, Rows, expanded, in_phases, unknown_values, values_of
from .replicas import are_replicas
from .semantics import Semantics

_BLOCK = np.uint64(16)
"""Bytes of the widest access of a lane."""
_NO_LIMIT = np.iinfo(np.int64).max
_PAIRS_AT_ONCE = 1 << 21
_MOST_OBSERVED = 256
"""Places whose observation order is tracked, or as many as there are threads: rows have a column for each of both.
Beyond, only fences and barriers order."""
_ALIKE = ("key", "thread", "epoch", "end_epoch", "late_number", "row", "site", "value", "write", "number")
"""Rows that agree in these cannot differ in what they conflict with."""

CODES = ("R101", "R102", "R103", "R104", "R105", "R107", "R107")
_FENCE, _MILD_FENCE = 5, 6
"""R107 as an error, and as a warning: public code without these fences works."""

_Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Shape:
    """What is common to CTAs with the same accesses to the same shared addresses: all but the values they store."""

    order: Order
    rows: Rows
    granule: int
    pairs: tuple[_Indices, _Indices] | None
    """Unordered pairs of rows; None where the values decide which rows count, or there are too many pairs to keep."""
    unfenced: Rows
    """Accesses of threads, then as many of the agents that follow them, in order but without a proxy fence between."""


@dataclass(frozen=True)
class Known:
    """What was computed for the CTAs of a launch, reused for CTAs that do the same."""

    orders: Orders = field(default_factory=dict)
    shapes: dict[tuple[bytes, ...], _Shape] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """The verdict on the log of one CTA, or of one cluster."""

    conflicts: list[Conflict]
    settled: bool
    """Whether there is no race whatever values are stored: nothing is left unordered."""


def judge_cta(log: npt.NDArray[np.void], threads: int, semantics: Semantics, known: Known) -> Judgement:
    """Return all pairs of instructions that race in this log of a CTA or a cluster, in shared memory or with a copy."""
    if len(log) == 0:
        return Judgement([], settled=True)
    # Global memory matters here only for this; CTAs that differ only in what they read there are judged together.
    addresses = range(_NO_LIMIT if _writes_a_source(log) else GLOBAL_BASE)
    touching = log[touches(log)]
    places = np.where(touching["address"] < addresses.stop, touching["address"], 0)
    decisive = decides(log, semantics)
    key = (*decisive, places.tobytes())
    if key not in known.shapes:
        known.shapes[key] = _shape(log, threads, semantics, addresses, known.orders)
    shape = known.shapes[key]
    order = replace(shape.order, ctas=np.unique(log["cta"]).astype(np.int32))
    found = _conflicts(shape, touching, order.ctas)
    kept = [each for each in found if each.address < GLOBAL_BASE or each.code in ("R104", "R105")]
    kept += left_over(log, order) + unfenced_maps(log, order)
    if semantics.one_cluster:
        kept += unsafe_peers(log, order, semantics)
    settled = not found and not kept and shape.pairs is not None and not len(shape.pairs[0])
    kept = [each for each in kept if not _exchanged(each, semantics) and not is_published(each, log, semantics)]
    kept = [recoded(each, log, semantics) for each in kept]
    kept = [
        replace(each, severity=Severity.INFO, replicas=True) if are_replicas(each, log, order, semantics) else each
        for each in kept
    ]
    kept = [replace(each, behind=barrier_behind(each, log, order, semantics)) for each in kept]
    kept = [replace(each, lacks=missing_step(each, log, order)) for each in kept]
    return Judgement(kept, settled)


def _exchanged(conflict: Conflict, semantics: Semantics) -> bool:
    """Whether lanes of one warp exchanged what they had read before one of them wrote there (`shuffles.py`)."""
    earlier, later = conflict.earlier, conflict.later
    inside = conflict.code == "R103" and (earlier.cta, earlier.warp) == (later.cta, later.warp)
    return inside and semantics.exchanges.between(earlier.site, later.site)


def _writes_a_source(log: npt.NDArray[np.void]) -> bool:
    """Whether anything in the log may write to what a copy reads: both access the same 16-byte block."""
    what, site = log["what"], log["site"]
    copied = what == What.COPY
    if not copied.any():
        return False
    sources = (what == What.LOAD) & np.isin(site, np.unique(site[copied]))
    writes = np.isin(what, (What.STORE, What.ATOMIC, What.EXCHANGE))
    return bool(np.isin(_global_blocks(log[writes]), _global_blocks(log[sources])).any())


def _global_blocks(log: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    on = ((log["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    on &= log["address"] >= GLOBAL_BASE
    first = log["address"][on]
    last = first + (np.broadcast_to(log["bytes"][:, None], on.shape)[on] - 1)
    return np.unique(np.concatenate([first // _BLOCK, last // _BLOCK]))


def find_conflicts_in_global(log: npt.NDArray[np.void], threads: int, semantics: Semantics) -> list[Conflict]:
    """Return all pairs of instructions that race in global memory in this log of CTAs of `threads` each."""
    if len(log) == 0:
        return []
    log = thinned(log)
    shape = _shape(log, threads, semantics, range(GLOBAL_BASE, _NO_LIMIT))
    found = _conflicts(shape, log[touches(log)], shape.order.ctas)
    found = [each for each in found if not _exchanged(each, semantics)]
    return [replace(each, behind=barrier_behind(each, log, shape.order, semantics)) for each in found]


def _shape(
    log: npt.NDArray[np.void], threads: int, semantics: Semantics, addresses: range, known: Orders | None = None
) -> _Shape:
    mixed = _mixed(log, semantics) if known is None else []
    order = order_of(log, threads, semantics, known, observed=mixed)
    every, granule = expanded(log, order, semantics, addresses)
    rows = _candidates(every, order)
    spots = set(_unobserved(log, rows, order))
    if not spots <= set(mixed):
        order = order_of(log, threads, semantics, observed=spots)
        every, granule = expanded(log, order, semantics, addresses)
        rows = _candidates(every, order)
    unfenced = _unfenced(every, order)
    if not len(rows["key"]):
        return _Shape(order, rows, granule, (np.zeros(0, np.intp), np.zeros(0, np.intp)), unfenced)
    repeated = len(rows["key"]) != len(_alike_once(rows, [name for name in _ALIKE if name != "value"])["key"])
    shared = not repeated and _pair_count(rows) <= _PAIRS_AT_ONCE
    return _Shape(order, rows, granule, _pairs(rows, order) if shared else None, unfenced)


def _unfenced(rows: Rows, order: Order) -> Rows:
    """Return accesses of threads that are ordered before an agent's access, but not fenced, and then the agents'."""
    a, b = before_agents(rows)
    if not len(a):
        return {}
    known = _before(rows, a, b, order)
    a, b = a[known], b[known]
    width = order.rows.shape[1] // 2
    fenced = order.rows[rows["row"][b], width + rows["column"][a]] >= rows["end_epoch"][a]
    late = rows["late"][a]
    fenced |= (late >= 0) & (order.rows[rows["row"][b], width + late] >= rows["late_number"][a])
    if fenced.all():
        return {}
    both = np.concatenate([a[~fenced], b[~fenced]])
    found = {name: column[both] for name, column in rows.items()}
    return {**found, "value": unknown_values(found)}


def _candidates(rows: Rows, order: Order) -> Rows:
    """Return the rows that may conflict."""
    rows = in_phases(rows, order)
    if len(rows["key"]):
        rows = _unchained(_interesting(rows), order)
        rows["value"] = unknown_values(rows)
        rows = _alike_once(rows, _ALIKE)
    return rows


def _mixed(log: npt.NDArray[np.void], semantics: Semantics) -> list[Spot]:
    """Return the places of strong writes next to plain accesses, which `_unobserved` may ask for; none if too many.

    To compute observation order for a few places that do not need it costs less than to order the log twice.
    """
    part = log[touches(log)]
    sites, index = np.unique(part["site"], return_inverse=True)
    kind = np.array([semantics.kind(site) for site in sites.tolist()])[index]
    strong, plain = part[(kind == 1) & (part["what"] != What.LOAD)], part[kind == 0]
    if not len(strong) or not len(plain):
        return []
    blocks = _global_blocks(plain)
    on = ((strong["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    record, lane = np.nonzero(on & (strong["address"] >= GLOBAL_BASE))
    at = strong["address"][record, lane]
    found = np.unique(at[np.isin(at // _BLOCK, blocks)]).tolist()
    threads = LANES * len(np.unique(part[["cta", "warp"]]))
    return [spot(0, address) for address in found] if len(found) <= max(_MOST_OBSERVED, threads) else []


def _unobserved(log: npt.NDArray[np.void], rows: Rows, order: Order) -> list[Spot]:
    """Places where a strong write conflicts with a plain access, unless some thread observed the write in between.

    Atomics are many and such places few, so observation order is computed only for these.
    """
    if not len(rows["key"]) or not ((rows["strength"] == STRONG) & (rows["write"] > 0)).any():
        return []
    rows, _ = without_crowds(rows)
    a, b = _pairs(rows, order)
    rows = {name: rows[name][np.concatenate([a, b])] for name in ("record", "thread", "cta", "strength", "write")}
    strong = np.flatnonzero((rows["strength"] == STRONG) & (rows["write"] > 0))
    at = log["address"][rows["record"][strong], rows["thread"][strong] % LANES].tolist()
    found = {spot(cta, address) for cta, address in zip(rows["cta"][strong].tolist(), at, strict=True)}
    return sorted(found)[: max(_MOST_OBSERVED, int((order.column_of >= 0).sum()))]


def _conflicts(shape: _Shape, touching: npt.NDArray[np.void], ctas: npt.NDArray[np.int32]) -> list[Conflict]:
    """Return the conflicts of a CTA (or several) of this shape that made these accesses."""
    missing: list[Conflict] = []
    if shape.unfenced:
        a, b = np.arange(len(shape.unfenced["record"])).reshape(2, -1)
        missing = _grouped(shape.unfenced, a, b, shape.granule, shape.order, ctas, unfenced=True)
    if not len(shape.rows["key"]):
        return missing
    rows = {**shape.rows, "value": values_of(shape.rows, touching, shape.granule)}
    open_cases: list[Conflict] = []
    if shape.pairs is None:
        rows, crowds = without_crowds(_alike_once(rows, _ALIKE))
        a, b = _pairs(rows, shape.order)
        possible = _grouped(rows, *unsettled(rows, crowds, a), shape.granule, shape.order, ctas)
        open_cases = [replace(each, severity=Severity.WARNING) for each in possible]
    else:
        a, b = shape.pairs
        differ = ~_alike(rows, a, b)
        a, b = a[differ], b[differ]
    return _grouped(rows, a, b, shape.granule, shape.order, ctas) + open_cases + missing


# -- rows → pairs --------------------------------------------------------------------------------------------------


def _interesting(rows: Rows) -> Rows:
    """Only groups with at least one write, not only atomics, and more than one thread (or a copy)."""
    order = np.argsort(rows["key"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    _, start, group = np.unique(rows["key"], return_index=True, return_inverse=True)
    written = np.maximum.reduceat(rows["write"], start) > 0
    weak = np.minimum.reduceat(rows["strength"], start) < STRONG
    several = np.minimum.reduceat(rows["actor"], start) != np.maximum.reduceat(rows["actor"], start)
    special = np.maximum.reduceat(rows["copy"] | rows["collective"], start) > 0
    keep = (written & weak & (several | special))[group]
    return {name: column[keep] for name, column in rows.items()}


def _unchained(rows: Rows, order: Order) -> Rows:
    """Drop the groups in which each access is ordered after the earlier ones that it could conflict with.

    That follows from the steps of a chain: every access after the last write before it, every read before the next
    write. The rows of a group are in the order of their records. A copy is a step like any other: what is ordered
    before it is ordered before its issue, what is ordered after it is ordered after its end.
    """
    key, write = rows["key"], rows["write"] > 0
    if not len(key) or not order.chains:
        return rows
    _, start, group = np.unique(key, return_index=True, return_inverse=True)
    end = np.append(start[1:], len(key))
    position = np.arange(len(key))
    last = np.maximum.accumulate(np.where(write, position, -1))
    last = np.concatenate([[-1], last[:-1]])
    following = np.minimum.accumulate(np.where(write, position, len(key))[::-1])[::-1]
    loose = np.zeros(len(key), bool)
    after = np.flatnonzero(last >= start[group])
    after = after[~_before(rows, last[after], after, order)]
    before = np.flatnonzero(~write & (following < end[group]))
    before = before[~_before(rows, before, following[before], order)]
    loose[np.concatenate([after, last[after], before, following[before]])] = True
    keep = np.logical_or.reduceat(loose, start)[group]
    rows = {**rows, "loose": loose.astype(np.int64)}
    return {name: column[keep] for name, column in rows.items()}


def _alike_once(rows: Rows, alike: Sequence[str]) -> Rows:
    """Keep the first of the rows of a group that agree in the columns `alike`. Copies all differ."""
    if not len(rows["key"]):
        return rows
    order = np.lexsort([rows["record"], *(rows[name] for name in reversed(alike))])
    columns = np.stack([rows[name][order] for name in alike])
    fresh = np.ones(len(order), bool)
    fresh[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    first = order[fresh]
    return {name: column[first] for name, column in rows.items()}


def _pair_count(rows: Rows) -> int:
    """Return the number of pairs of rows of one group of which the first writes."""
    if not len(rows["key"]):
        return 0
    _, group, counts = np.unique(rows["key"], return_inverse=True, return_counts=True)
    return int(counts[group[rows["write"] > 0]].sum())


def _pairs(rows: Rows, order: Order) -> tuple[_Indices, _Indices]:
    """Return the conflicting pairs of rows, the earlier by record first."""
    found: list[tuple[_Indices, _Indices]] = []
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
    return np.where(swap, b, a), np.where(swap, a, b)


def _conflicting(rows: Rows, a: _Indices, b: _Indices, order: Order) -> tuple[_Indices, _Indices]:
    # A pair of writers occurs twice: keep one. One lane of one instruction is no pair.
    once = (rows["write"][b] == 0) | (a < b)
    a, b = a[once], b[once]
    same = rows["actor"][a] == rows["actor"][b]
    lasting = (rows["copy"][a] | rows["copy"][b] | rows["collective"][a] | rows["collective"][b]) > 0
    # Volatile counts as relaxed: with an atomic it is no race; two volatile accesses are data that lanes pass around.
    strong = rows["strength"][a] + rows["strength"][b] >= STRONG + VOLATILE
    keep = (~same | lasting) & ~strong & ~_alike(rows, a, b)
    # The source and the destination of one copy, and the two sides of one ldmatrix, are one event.
    keep &= ~(same & (rows["record"][a] == rows["record"][b]))
    a, b = a[keep], b[keep]
    ordered = _before(rows, a, b, order) | _before(rows, b, a, order)
    return a[~ordered], b[~ordered]


def _alike(rows: Rows, a: _Indices, b: _Indices) -> npt.NDArray[np.bool_]:
    """Whether pairs are the same instruction with the same value: compilers share work that way, and it is safe."""
    alike: npt.NDArray[np.bool_] = (rows["site"][a] == rows["site"][b]) & (rows["value"][a] == rows["value"][b])
    alike &= (rows["write"][a] > 0) & (rows["write"][b] > 0) & (rows["cta"][a] == rows["cta"][b])
    return alike


def _before(rows: Rows, a: _Indices, b: _Indices, order: Order) -> npt.NDArray[np.bool_]:
    known: npt.NDArray[np.bool_] = order.rows[rows["row"][b], rows["column"][a]] >= rows["end_epoch"][a]
    if order.copies.columns or order.agents.columns:
        late = rows["late"][a]
        known |= (late >= 0) & (order.rows[rows["row"][b], late] >= rows["late_number"][a])
    own = (rows["actor"][a] == rows["actor"][b]) & (rows["collective"][a] + rows["collective"][b] == 0)
    known |= own & (rows["end"][a] < rows["record"][b])
    if order.observation.starts:
        starts = np.array(order.observation.starts)
        seen = order.rows[rows["row"][b], rows["place"][a]]
        known |= (rows["place"][a] >= 0) & (seen >= rows["number"][a]) & (starts[seen] <= rows["number"][a])
    return known


# -- pairs → conflicts ---------------------------------------------------------------------------------------------


def _grouped(
    rows: Rows,
    a: _Indices,
    b: _Indices,
    granule: int,
    order: Order,
    ctas: npt.NDArray[np.int32],
    *,
    unfenced: bool = False,
) -> list[Conflict]:
    """Return one conflict per code, pair of instructions and neighbourhood (in a warp, between warps or CTAs)."""
    if not len(a):
        return []
    names = ("granule", "thread", "cta", "record", "site", "write", "copy", "value", "strength")
    pairs = {f"{side}{name}": rows[name][chosen] for side, chosen in (("a", a), ("b", b)) for name in names}
    a_warp, b_warp = pairs["athread"] // LANES, pairs["bthread"] // LANES
    # A thread that accesses its own copy is as wrong as two warps; only lanes of a warp may run in lockstep.
    lockstep = (a_warp == b_warp) & ((pairs["athread"] != pairs["bthread"]) | (pairs["acopy"] + pairs["bcopy"] == 0))
    codes = _fence_codes(pairs) if unfenced else _codes(pairs)
    kind = (codes * 2 + lockstep) * 2 + (pairs["acta"] != pairs["bcta"])
    sites = int(max(pairs["asite"].max(), pairs["bsite"].max())) + 1
    _, index = np.unique((kind * sites + pairs["asite"]) * sites + pairs["bsite"], return_inverse=True)
    by_kind = np.argsort(index, kind="stable")
    found = []
    per_cta = len(order.column_of) // len(ctas) // LANES
    for which in np.split(by_kind, np.flatnonzero(np.diff(index[by_kind])) + 1):
        code, inside = CODES[kind[which[0]] // 4], bool(lockstep[which[0]])
        first = which[np.lexsort((pairs["agranule"][which], pairs["arecord"][which], pairs["brecord"][which]))[0]]
        mine = which[(a_warp[which] == a_warp[first]) & (b_warp[which] == b_warp[first])]
        for side in ("arecord", "brecord"):
            mine = mine[pairs[side][mine] == pairs[side][first]]
        equal = bool((pairs["avalue"][which] == pairs["bvalue"][which]).all()) and code == "R101"
        volatile = bool(((pairs["astrength"][which] != PLAIN) & (pairs["bstrength"][which] != PLAIN)).all())
        # Volatile accesses are no data race, and compilers move loads up, not stores: a lane of the same warp that
        # overwrites what another has read before is wrong only where the two do not run in lockstep.
        mild = volatile or (inside and code == "R103") or bool(codes[which[0]] == _MILD_FENCE)
        severity = Severity.INFO if equal else Severity.WARNING if mild else Severity.ERROR
        actors = [
            Actor(
                int(pairs[f"{side}site"][first]),
                int(ctas[warp[first] // per_cta]),
                int(warp[first]) % per_cta,
                _mask(pairs[f"{side}thread"][mine]),
                int(pairs[f"{side}record"][first]),
            )
            for side, warp in (("a", a_warp), ("b", b_warp))
        ]
        granules = np.unique(pairs["agranule"][mine])
        run = int(np.argmax(np.diff(granules, append=granules[-1] + 2) != 1)) + 1
        count = len(np.unique(a_warp[which] * (1 << 31) + b_warp[which]))
        earlier, later = actors
        home, address = within(int(granules[0]) * granule)
        owner = int(ctas[home]) if address < GLOBAL_BASE else -1
        found.append(
            Conflict(code, severity, earlier, later, address, run * granule, count, behind=earlier, owner=owner)
        )
    return sorted(found, key=lambda c: (c.later.record, c.code, c.earlier.record))


def _mask(threads: npt.NDArray[np.int64]) -> int:
    return sum(1 << lane for lane in np.unique(threads % LANES).tolist())


def _codes(pairs: Rows) -> npt.NDArray[np.int64]:
    """Return numbers in CODES: R101 to R103 by who writes; R104, R105 if a copy was in flight at the later access."""
    plain = np.where(pairs["awrite"] & pairs["bwrite"], 0, np.where(pairs["awrite"], 1, 2))
    return np.where(pairs["acopy"] > 0, np.where(pairs["awrite"], 3, 4), plain)


def _fence_codes(pairs: Rows) -> npt.NDArray[np.int64]:
    """Return numbers in CODES: an error if a thread stored the bytes; a warning if it read or copied them."""
    return np.where((pairs["awrite"] > 0) & (pairs["acopy"] == 0), _FENCE, _MILD_FENCE)
