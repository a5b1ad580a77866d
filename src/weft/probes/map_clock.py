"""Which tensor maps a kernel changes and then uses without the fences of their proxy.

Bulk copies read their map in a separate proxy. A thread that has written one releases it (`tensormap.cp_fenceproxy`, or
`fence.proxy.tensormap::generic.release`), and the thread that issues the copy, or one that it is ordered after,
acquires it (`fence.proxy.tensormap::generic.acquire`) after it learned of that. In the rows of `clocks.py` each map
that is used has a column: how many of its writes are acquired.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from weft.vm.ir import LANES
from weft.vm.tensor_map import BYTES

from .events import What
from .observation import Ints

OF_MAPS = (What.MAP, What.MAP_ACQUIRE, What.MAP_RELEASE)


@dataclass
class _Write:
    record: int
    thread: int
    epoch: int
    together: bool
    """Whether the warp wrote it as a whole (`tensormap.cp_fenceproxy`): all of its lanes know of it."""
    released: bool = False


@dataclass(frozen=True)
class UnfencedMap:
    """A copy whose map was written without a fence between: the records of both, and the map's address."""

    write: int
    use: int
    address: int


@dataclass
class MapClock:
    """Follows the maps that the bulk copies of a log use."""

    columns: dict[int, int]
    """Address of a map → its column."""
    writers: frozenset[int] = frozenset()
    """Records of stores to a map."""
    unfenced: list[UnfencedMap] = field(default_factory=list)
    _writes: dict[int, list[_Write]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: npt.NDArray[np.void], first_column: int) -> "MapClock":
        used = _used(log)
        stores = np.flatnonzero(log["what"] == What.STORE) if len(used) else np.zeros(0, np.intp)
        address, on = log["address"][stores], _lanes(log[stores])
        inside = [(on & (address - place < BYTES)).any(axis=1) for place in used]
        writers = stores[np.any(inside, axis=0)] if len(stores) else stores
        return cls({place: first_column + at for at, place in enumerate(used.tolist())}, frozenset(writers.tolist()))

    def store(self, record: int, row: np.void, warp: int, epochs: Ints, *, together: bool) -> None:
        """Note the lanes that write to a map; `together` if the warp does so as a whole."""
        lanes = ((row["lanes"] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
        for address in self.columns:
            inside = row["address"] - np.uint64(address) < BYTES  # unsigned: what is before the map is far behind it
            for lane in np.flatnonzero(inside & lanes).tolist():
                write = _Write(record, warp * LANES + lane, int(epochs[lane]), together)
                self._writes.setdefault(address, []).append(write)

    def release(self, threads: list[int]) -> None:
        for writes in self._writes.values():
            for write in writes:
                write.released |= write.thread in threads

    def acquired(self, address: int, thread: int, column_of: Ints, row: Ints) -> tuple[int, int] | None:
        """Return the column of a map and how many of its writes, from the first on, an acquire by `thread` covers."""
        writes = self._writes.get(address)
        if address not in self.columns or not writes:
            return None
        covered = [write.released and _is_known(write, thread, column_of, row) for write in writes]
        return self.columns[address], covered.index(False) if False in covered else len(covered)

    def use(self, record: int, address: int, acquired: int) -> None:
        """Note that a copy uses a map, of which its thread knows `acquired` writes to be acquired."""
        writes = self._writes.get(address, [])
        if max(acquired, 0) < len(writes):
            self.unfenced.append(UnfencedMap(writes[max(acquired, 0)].record, record, address))


def _used(log: npt.NDArray[np.void]) -> npt.NDArray[np.uint64]:
    """Return the addresses of the maps that bulk copies use."""
    uses = log[log["what"] == What.MAP]
    return np.unique(uses["address"][_lanes(uses)])


def _lanes(log: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    on: npt.NDArray[np.bool_] = ((log["lanes"][:, None] >> np.arange(LANES, dtype=np.uint32)) & 1).astype(bool)
    return on


def maps_named(log: npt.NDArray[np.void]) -> npt.NDArray[np.int32]:
    """Return for each lane of a store, a use or an acquire which of the maps that the log uses it names; -1 if none."""
    used = _used(log)
    if not len(used):
        return np.zeros(0, np.int32)
    part = log[np.isin(log["what"], (What.STORE, What.MAP, What.MAP_ACQUIRE))]
    which = np.searchsorted(used, part["address"], side="right").astype(np.int32) - 1
    inside = (which >= 0) & (part["address"] - used[which] < BYTES) & _lanes(part)
    return np.where(inside, which, -1).astype(np.int32)


def _is_known(write: _Write, thread: int, column_of: Ints, row: Ints) -> bool:
    own = write.thread == thread or (write.together and write.thread // LANES == thread // LANES)
    return own or bool(row[column_of[write.thread]] >= write.epoch)
