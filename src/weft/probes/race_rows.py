"""racecheck, second pass: the accesses of a log as rows, one per lane and granule, in groups that may conflict.

A granule is the largest piece that every access touches fully or not at all. Columns are int64 arrays by name; a group
is a granule in a phase (between two barriers of all threads), and `key` is its number. `actor` is the thread, or the
warp where its lanes count as one thread (`Semantics.by_warp`). A strong write that others may observe has a `number`,
and `place` is its column (`observation.py`); other accesses have -1. Copies that arrive at an mbarrier, and agents,
have a `late_number`, and `late` is the column (`copy_clock.py`, `agent_clock.py`). A bulk copy is one range of bytes.
In a log with products, granules that the same copies and products touch are represented by the first of them.
"""

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES
from weft.vm.memory import LOCAL_BASE, PARAM_BASE, WINDOW_BYTES

from .agent_clock import STORES
from .copy_clock import NEVER
from .events import What
from .order import Order, across, touches
from .semantics import Semantics, is_strong, is_volatile

PLAIN, VOLATILE, STRONG = range(3)
_PRODUCTS = -(1 << 40)
"""The `actor` of products of warp w is this minus w: they are ordered with no thread by its program order."""
_ATOMIC = np.iinfo(np.int64).min
"""The value in rows of atomics and of reads."""

Rows = dict[str, npt.NDArray[np.int64]]


def expanded(log: npt.NDArray[np.void], order: Order, semantics: Semantics, addresses: range) -> tuple[Rows, int]:
    """Return a row for each lane and granule of the accesses to `addresses`, and the size of a granule."""
    what = log["what"].astype(np.int64)
    touching = touches(log)
    part = log[touching]
    on = ((part["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    address = part["address"].astype(np.int64)
    on &= (address >= addresses.start) & (address < addresses.stop)
    for base in (LOCAL_BASE, PARAM_BASE):
        on &= ~((address >= base) & (address < base + WINDOW_BYTES))
    index, lane = np.nonzero(on)
    at = address[index, lane]
    size = part["bytes"][index].astype(np.int64)
    granule = int(np.bitwise_or.reduce(at | size)) if len(at) else 1
    granule = min(granule & -granule, 16)
    record = touching[index]
    if not len(record):
        return {name: np.zeros(0, np.int64) for name in ("key", "granule", "agent")}, granule
    agent_of = np.full((4, len(log)), -1, np.int64)  # record → column, number, end and row of its agent
    for each, known_agent in order.agents.issued.items():
        agent_of[:, each] = known_agent.column, known_agent.number, known_agent.ended, known_agent.row
    pieces = size // granule
    repeat = np.repeat(np.arange(len(at)), pieces)
    within = np.arange(len(repeat)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    owner = np.searchsorted(order.ctas, part["owner"][index]).astype(np.int64)
    granules = across(at, owner)[repeat] // granule + within
    agent = agent_of[0, record] >= 0
    multiplied = agent & (what[record] == What.TILE)
    if multiplied.any():
        alike = np.stack([log["cta"], log["warp"], log["site"], agent_of[1], agent_of[3]])
        kept = _representatives(granules, _classes(record, multiplied, alike)[repeat])
        repeat, within, granules = repeat[kept], within[kept], granules[kept]
        used = np.zeros(len(record), bool)
        used[repeat] = True
        repeat = (np.cumsum(used) - 1)[repeat]
        index, lane, at, record, agent, multiplied = (
            each[used] for each in (index, lane, at, record, agent, multiplied)
        )
    snapshots = order.snapshot_of[record]
    rows_known = np.stack([snapshot.rows for snapshot in order.snapshots])
    epochs = np.stack([snapshot.epochs for snapshot in order.snapshots])
    kinds = _kinds(part, semantics)
    copies = _copied(log, touching, what)
    stored = (part["what"] == What.BULK) & (part["number"] == STORES)
    end, end_epoch = record.copy(), epochs[snapshots, lane].astype(np.int64)
    late, late_number = np.full((2, len(record)), -1, np.int64)
    issue = np.where(copies[index] >= 0, copies[index], record)  # a load may be all that the log has of a copy
    known = np.isin(issue, list(order.copies.issued))
    if known.any():
        which, number = np.unique(issue[known], return_inverse=True)
        issued = [order.copies.issued[each] for each in which.tolist()]
        who = lane[known]
        late[known] = np.stack([copy.late for copy in issued])[number, who]
        late_number[known] = np.stack([copy.late_number for copy in issued])[number, who]
        lasting = known & (copies[index] >= 0)
        ends = np.stack([np.minimum(copy.waited, copy.ended) for copy in issued])[number, who]
        epochs_then = np.stack([copy.epoch for copy in issued])[number, who]
        end[lasting], end_epoch[lasting] = ends[lasting[known]], epochs_then[lasting[known]]
    late[agent], late_number[agent], end[agent] = agent_of[:3, record[agent]]
    end_epoch[agent] = NEVER
    cta = np.searchsorted(order.ctas, part["cta"][index]).astype(np.int64)
    per_cta = len(order.column_of) // len(order.ctas)
    thread = cta * per_cta + part["warp"][index].astype(np.int64) * LANES + lane
    row, actor = rows_known[snapshots, lane].astype(np.int64), thread.copy()
    by_warp = np.flatnonzero((at >= semantics.by_warp.start) & (at < semantics.by_warp.stop))
    if len(by_warp):
        row[by_warp] = [order.joint_rows[number] for number in snapshots[by_warp].tolist()]
        actor[by_warp] = -1 - thread[by_warp] // LANES
    if multiplied.any():
        row[multiplied] = agent_of[3, record[multiplied]]
        actor[multiplied] = _PRODUCTS - thread[multiplied] // LANES
    lane_rows: Rows = {
        "thread": thread,
        "actor": actor,
        "column": order.column_of[thread].astype(np.int64),
        "cta": cta,
        "record": record,
        "end": end,
        "row": row,
        "epoch": epochs[snapshots, lane].astype(np.int64),
        "end_epoch": end_epoch,
        "late": late,
        "late_number": late_number,
        "site": part["site"][index].astype(np.int64),
        "write": (~np.isin(what[record], (What.LOAD, What.TILE)) & ~stored[index]).astype(np.int64),
        "strength": np.where(agent, PLAIN, kinds[index]),
        "copy": ((copies[index] >= 0) | agent).astype(np.int64),
        "agent": agent.astype(np.int64),
        "collective": ((what[record] == What.TILE) & ~agent).astype(np.int64),
        "place": np.full(len(record), -1, np.int64),
        "number": np.full(len(record), -1, np.int64),
    }
    writes = order.observation.writes
    for there in np.flatnonzero(np.isin(record, [each for each, _ in writes])).tolist():
        found = writes.get((int(record[there]), int(lane[there])), (-1, -1))
        lane_rows["place"][there], lane_rows["number"][there] = found
    # A volatile access is strong only where it serves to synchronise.
    flags = np.array([address for _, address in order.flags], np.int64)
    lane_rows["strength"][(lane_rows["strength"] == VOLATILE) & np.isin(at, flags)] = STRONG
    rows = {name: column[repeat] for name, column in lane_rows.items()}
    rows["access"], rows["within"], rows["granule"] = index[repeat].astype(np.int64), within, granules
    return rows, granule


def _classes(
    record: npt.NDArray[np.intp], multiplied: npt.NDArray[np.bool_], alike: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return a number for each access, by a lane in a record; those of one product by one warp have the same.

    `alike` has a column for each record: products that agree in it are one.
    """
    numbers = np.arange(1, len(multiplied) + 1, dtype=np.uint64)
    products = np.flatnonzero(multiplied)
    fresh = np.append(True, np.diff(record[products]) != 0)  # the lanes of a record are one after the other
    ones = products[fresh]
    _, first, which = np.unique(alike[:, record[ones]], axis=1, return_index=True, return_inverse=True)
    numbers[products] = numbers[ones[first][which.reshape(-1)]][np.cumsum(fresh) - 1]
    return numbers


def _representatives(granules: npt.NDArray[np.int64], classes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return the rows of one granule of all those that the same accesses touch: the others would show the same."""
    order = np.argsort(granules, kind="stable")
    sorted_granules = granules[order]
    fresh = np.append(True, sorted_granules[1:] != sorted_granules[:-1])
    mixed = classes[order] * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    signature = np.add.reduceat(mixed ^ mixed >> np.uint64(32), np.flatnonzero(fresh))
    chosen = np.zeros(len(signature), bool)
    chosen[np.unique(signature, return_index=True)[1]] = True
    kept = np.zeros(len(granules), bool)
    kept[order] = chosen[np.cumsum(fresh) - 1]
    return kept


def _kinds(part: npt.NDArray[np.void], semantics: Semantics) -> npt.NDArray[np.int64]:
    """Return for each access whether it is plain, volatile or strong."""
    sites, index = np.unique(part["site"], return_inverse=True)
    found = [semantics.at(site) for site in sites.tolist()]
    signals = np.array([ins is not None and ins.facts.signals for ins in found])
    strong = [is_strong(ins) or sends for ins, sends in zip(found, signals.tolist(), strict=True)]
    kinds = [
        VOLATILE if is_volatile(ins) else STRONG if each else PLAIN for ins, each in zip(found, strong, strict=True)
    ]
    # st.async is a plain store, and an atomic operation at an mbarrier.
    return np.where(signals[index] & (part["what"] == What.STORE), PLAIN, np.array(kinds)[index])


def _copied(
    log: npt.NDArray[np.void], touching: npt.NDArray[np.intp], what: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return for each access the record that issued its copy, or -1. The read of the source is the record before it."""
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


def unknown_values(rows: Rows) -> npt.NDArray[np.int64]:
    """Return negative numbers that equal no other value, except for those of atomics and of reads."""
    unknown = -1 - (rows["record"] * LANES + rows["thread"] % LANES)
    return np.where((rows["write"] == 0) | (rows["strength"] == STRONG), _ATOMIC, unknown)


def values_of(rows: Rows, part: npt.NDArray[np.void], granule: int) -> npt.NDArray[np.int64]:
    """Return what each row stores, as a number, from the records that access memory."""
    access, lane = rows["access"], rows["thread"] % LANES
    element = part["element"][access].astype(np.int64)
    values = unknown_values(rows)
    known = np.flatnonzero((element > 0) & (rows["write"] > 0))
    number = np.zeros(len(known), np.uint64)
    size = element[known]
    for byte in range(granule):
        at = rows["within"][known] * granule + byte
        place = at // size * (size * LANES) + lane[known] * size + at % size
        number = number * np.uint64(257) + part["value"][access[known], place]
    values[known] = (number & np.uint64(2**63 - 1)).astype(np.int64)
    return values


def in_phases(rows: Rows, order: Order) -> Rows:
    """Give rows their group's key; a copy is in every phase from its issue to its arrival."""
    if not len(rows["granule"]):
        return rows
    last = int(order.phase_of.max(initial=0))
    first_phase = order.phase_of[rows["record"]].astype(np.int64)
    last_phase = first_phase.copy()
    copies = np.flatnonzero(rows["copy"])
    ends = rows["end"][copies]
    last_phase[copies] = np.where(ends == NEVER, last, order.phase_of[np.minimum(ends, len(order.phase_of) - 1)])
    spans = last_phase - first_phase + 1
    repeat = np.repeat(np.arange(len(spans)), spans)
    phase = np.arange(len(repeat)) - np.repeat(np.cumsum(spans) - spans, spans) + first_phase[repeat]
    _, place = np.unique(rows["granule"], return_inverse=True)
    rows = {name: column[repeat] for name, column in rows.items()}
    rows["key"] = place[repeat].astype(np.int64) * (last + 1) + phase
    return rows
