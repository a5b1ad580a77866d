"""The log of one or more CTAs: what decides the order of its accesses, and the order that `clocks.py` finds."""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weft.vm.clusters import RANK_SHIFT
from weft.vm.ir import LANES
from weft.vm.mbarrier_word import PHASE_MASK, PHASE_SHIFT
from weft.vm.memory import GLOBAL_BASE, SHARED_BASE, WINDOW_BYTES

from .agent_clock import AgentClock
from .copy_clock import CopyClock
from .events import What
from .map_clock import MapClock, maps_named
from .observation import Ints, Observation, Spot
from .semantics import COUNTS, FLAG, Semantics


@dataclass(frozen=True)
class Snapshot:
    """A warp's lanes between two synchronisations: which row each knows and in which epoch it is."""

    rows: Ints
    epochs: Ints


@dataclass(frozen=True)
class Order:
    """The order of a CTA's events."""

    rows: Ints
    """[row, column]: the last epoch of a thread that is over for the threads with this row; then the columns of
    `copies`, of `agents` and of `observation`; with agents, all of these again for what is fenced."""
    column_of: Ints
    """Thread → its column, -1 if it accesses no memory."""
    ctas: Ints
    """Numbers of the CTAs in the log, in rising order; threads are numbered across them, in full warps."""
    snapshots: list[Snapshot]
    snapshot_of: Ints
    """Record → index of its warp's snapshot at that time."""
    phase_of: Ints
    """Record → number of barriers of all threads before it: accesses in different phases are ordered."""
    copies: CopyClock
    """When asynchronous copies were complete."""
    agents: AgentClock
    """When bulk copies and products were complete."""
    maps: MapClock
    """Tensor maps that were used without a fence."""
    flags: frozenset[tuple[int, int]]
    """Addresses (as `spot` gives them) through which threads synchronise by volatile accesses."""
    observation: Observation
    """Strong writes of the places in `observed`."""
    joint_rows: dict[int, int]
    """Snapshot → the row that its warp's lanes know together, where they count as one thread (`Semantics.by_warp`)."""
    chains: bool
    """Whether a before b and b before c always means a before c; not where a thread exited with unpublished news."""
    last_known: tuple[Ints, ...]
    """For each CTA of a cluster the row that its threads know together in the end."""

    def columns_in(self, cta: int) -> Ints:
        """Return the columns of the threads of a CTA, by its index."""
        per_cta = len(self.column_of) // len(self.ctas)
        columns = self.column_of[cta * per_cta : (cta + 1) * per_cta]
        return columns[columns >= 0]


@functools.lru_cache(maxsize=1024)
def lanes_in(mask: int) -> npt.NDArray[np.intp]:
    """Lane numbers of a bit mask."""
    lanes = np.flatnonzero((mask >> np.arange(LANES)) & 1)
    lanes.flags.writeable = False
    return lanes


def spot(cta: int, address: int) -> Spot:
    """An address that means the same in all CTAs: shared memory is each CTA's own."""
    return (-1 if address >= GLOBAL_BASE else cta, address)


def across(addresses: npt.NDArray[np.int64], owners: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return addresses that differ between CTAs of a cluster; `owners`: the indices of the CTAs that they are in."""
    inside = (addresses >= SHARED_BASE) & (addresses < SHARED_BASE + WINDOW_BYTES)
    return np.where(inside, addresses + (owners << RANK_SHIFT), addresses)


def within(address: int) -> tuple[int, int]:
    """Return the index of the CTA that an address of `across` is in, and the address there."""
    if not SHARED_BASE <= address < SHARED_BASE + WINDOW_BYTES:
        return 0, address
    index = address - SHARED_BASE >> RANK_SHIFT
    return index, address - (index << RANK_SHIFT)


def phase_spots(row: np.void, lanes: list[int], cta: int) -> dict[Spot, list[int]]:
    """Phases of mbarriers, and the lanes that access each.

    Each phase is a separate place: a thread that finds it complete does not know what others did for a later one.
    """
    words, addresses = row["value"].view(np.uint64)[lanes], row["address"][lanes]
    phases = words >> np.uint64(PHASE_SHIFT) & np.uint64(PHASE_MASK)
    if (addresses == addresses[0]).all() and (phases == phases[0]).all():
        where, address = spot(cta, int(addresses[0]))
        return {(where, address + (int(phases[0]) + 1 << PHASE_SHIFT)): lanes}
    found: dict[Spot, list[int]] = {}
    for lane, at, phase in zip(lanes, addresses.tolist(), phases.tolist(), strict=True):
        where, address = spot(cta, at)
        found.setdefault((where, address + (phase + 1 << PHASE_SHIFT)), []).append(lane)
    return found


_TOUCHES = np.isin(list(What), (What.LOAD, What.STORE, What.ATOMIC, What.EXCHANGE, What.COPY, What.TILE, What.BULK))


def touches(log: npt.NDArray[np.void]) -> npt.NDArray[np.intp]:
    """Records that access memory."""
    return np.flatnonzero(_TOUCHES[log["what"]])


def thinned(log: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return the log without barriers that order nothing: of a CTA that did nothing before, after, or since the last.

    Where a thread arrives without waiting, no barrier is left out: it may learn at the next one.
    """
    what, places = log["what"], np.argsort(log["cta"], kind="stable")
    arrives, completes = what == What.ARRIVE, what == What.COMPLETE
    if (arrives & (log["bytes"] == 0)).any():
        return log
    keep = np.ones(len(log), bool)
    for mine in np.split(places, np.flatnonzero(np.diff(log["cta"][places])) + 1):
        acts = np.flatnonzero(~(arrives | completes)[mine])
        whole = np.flatnonzero(completes[mine] & (log["bytes"][mine] != 0))
        if not len(acts):
            keep[mine] = False
            continue
        keep[mine[acts[-1] + 1 :]] = False
        before = np.searchsorted(acts, whole)  # how much was done before each barrier
        for number in np.unique(before[before < len(acts)]).tolist():
            ends = whole[before == number]
            keep[mine[ends[0] + 1 if number else 0 : ends[-1] + 1]] = False
    return log[keep]


def decides(log: npt.NDArray[np.void], semantics: Semantics) -> tuple[bytes, ...]:
    """Return all that `_Pass` reads: what each thread does, where strong accesses and copies are, mbarrier phases."""
    sites, index = np.unique(log["site"], return_inverse=True)
    kinds = np.array([semantics.kind(site) for site in sites.tolist()])[index]
    placed = log[(kinds > 0) | np.isin(log["what"], (What.BULK, What.LANDED))]
    on = (placed["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1
    places = placed["address"] * on
    if kinds.max(initial=0) < FLAG:  # only which of them are the same matters, and which are the CTA's own
        known, number = np.unique(places, return_inverse=True)
        places = 2 * number + (known >= GLOBAL_BASE)[number]
    events = (log[name].tobytes() for name in ("what", "site", "warp", "lanes", "bytes", "number"))
    ctas = np.unique(log["cta"])
    whose = (np.searchsorted(ctas, log[name]).astype(np.uint8).tobytes() for name in ("cta", "owner"))
    return (
        *events,
        *(whose if len(ctas) > 1 else ()),
        places.tobytes(),
        maps_named(log).tobytes(),
        log["value"][kinds == COUNTS].tobytes(),
    )
