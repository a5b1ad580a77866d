"""The records of a launch (`context.py`), laid out once for a kernel and a shape, and started again for each launch.

A launch has one grid record and, for each host thread, a ring of workers. To lay them out takes longer than a small
kernel runs. So they are kept after the launch, with a copy of their state at its start; the next launch of the same
kernel and shape copies it back and sets what differs: the parameters, the order of CTAs, where memory is.
"""

import ctypes
import functools
import math
import operator
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from weft.core.records import Dim3

from . import context as c
from .host_calls import HostCalls
from .host_memory import aligned_bytes, sparse_zeros
from .ir import LANES
from .layout import shared_arrays
from .memory import LOCAL_START, Bytes, GlobalMemory
from .program import Plan, Program
from .regions import Regions, area
from .runtime.bulk_record import ENTRY_BYTES
from .runtime.copies import COPY_BYTES
from .runtime.library import Library, library
from .runtime.warpgroups import ring_bytes
from .runtime.watch import Instrumentation

REPORT_CAPACITY = 4096
COPY_CAPACITY = 512
BULK_CAPACITY = 1024
SLICE = 4096
SLICE_TOGETHER = 256
"""Loop iterations of a turn if CTAs may wait for each other: the most that a spinning warp wastes before others run."""
MOST_KEPT, MOST_KEPT_BYTES = 8, 4 << 20
"""Limits of the records that are kept for one program: their number, and the size of each."""
_MEMORY = [each.at // 8 for each in (c.WARP_GLOBAL, c.WARP_GLOBAL_BYTES, c.WARP_OWNERS, c.WARP_ALLOCATIONS)]

Entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


@dataclass(frozen=True)
class Shape:
    """What records depend on, in addition to the program and its watcher."""

    grid: Dim3
    block: Dim3
    shared_bytes: int
    """Dynamic shared memory."""
    sms: int
    threads: int
    """Host threads."""
    places: int
    """CTAs that a host thread runs together."""
    warp_order: tuple[int, ...]
    bulk: int = c.BULK_LATE
    """When bulk copies are carried out."""
    registers: int = 0
    """Of each thread when a CTA starts; 0: `setmaxnreg` has no effect."""
    cluster: Dim3 = (1, 1, 1)
    """CTAs of a cluster in x, y and z; `places` has entire clusters."""
    stops_at: int = 0
    """The number of reports at which the launch is stopped; 0: none."""

    @property
    def warps(self) -> int:
        return len(self.warp_order)


@dataclass
class Worker:
    """The records of a running CTA, and the objects that keep them alive."""

    record: Bytes
    warps: Bytes
    reports: Bytes
    counts: npt.NDArray[np.uint64]
    probe: Bytes
    frames: Bytes
    local: Bytes
    regions: Regions
    kept: list[Any] = field(default_factory=list)
    first_record: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    first_warps: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    """Record and warps at the start of a launch."""

    def report_count(self) -> int:
        return min(read_field(self.record, c.WORKER_REPORT_COUNT), REPORT_CAPACITY)


class Records:
    """The records of one launch at a time."""

    def __init__(self, program: Program, shape: Shape, watch: Instrumentation, memory: GlobalMemory) -> None:
        self.plan: Plan = program.plan
        self.in_step = program.in_step
        self.shape, self.watch = shape, watch
        self.library: Library = library(watch)
        self.table = self.addresses(self.plan.imports)
        self.entry = Entry(self.library.address("run"))
        self.grid = _buffer(c.GRID_BYTES)
        self.calls = HostCalls(program.source, memory)
        self.params = _buffer(self.plan.layout.param_bytes + 8 * len(self.plan.globals) + 64)
        self.warp_order = np.array(shape.warp_order, np.uint32)
        self.order: npt.NDArray[np.uint32] | None = None
        self.boards: list[Bytes] = []
        self.budgets: list[npt.NDArray[np.int64]] = []
        self._memory: tuple[object, ...] = ()
        self._used = -1
        self.rings = [self._ring(memory) for _ in range(shape.threads)]
        self.workers = [worker for ring in self.rings for worker in ring]

    def addresses(self, imports: Sequence[str]) -> npt.NDArray[np.uint64]:
        """Return the table of the runtime functions that compiled code imports."""
        return np.array([self.library.address(name) for name in imports] or [0], np.uint64)

    @functools.cached_property
    def reusable(self) -> bool:
        """Whether they can be kept: the memory of checkers is not, because it is as large as global memory."""
        size = sum(each.frames.nbytes + each.local.nbytes + each.warps.nbytes for each in self.workers)
        return keeps_nothing(self.watch) and size <= MOST_KEPT_BYTES

    def start(
        self,
        memory: GlobalMemory,
        params: bytes,
        globals_at: Sequence[int],
        order: npt.NDArray[np.uint32] | None,
        total: int,
        max_steps: int,
    ) -> None:
        """Set everything to its state at the start of a launch of `total` CTAs."""
        self.calls.begin(memory)
        self.params[: len(params)] = np.frombuffer(params, np.uint8)
        at = self.plan.layout.param_bytes
        self.params[len(params) : at] = 0
        if globals_at:
            self.params[at : at + 8 * len(globals_at)] = np.array(globals_at, np.uint64).view(np.uint8)
        self.order = order  # keeps it alive
        self.grid[:] = 0
        wide = self.grid.view(np.uint64)
        wide[c.GRID_TOTAL.at // 8] = total
        wide[c.GRID_ORDER.at // 8] = order.ctypes.data if order is not None else 0
        self.grid.view(np.uint32)[c.GRID_DIM.at // 4 : c.GRID_DIM.at // 4 + 3] = self.shape.grid
        for budget in self.budgets:
            budget[0] = max_steps
        self._follow(memory)
        for worker in self.workers:
            worker.record[:] = worker.first_record
            worker.warps[:] = worker.first_warps
            worker.counts[:] = 0
            worker.frames[:] = 0
            if self.plan.layout.local_bytes > LOCAL_START:
                worker.local[:] = 0xFF
            if self.plan.names_regions:
                worker.regions.seen.clear()
                worker.regions.clear()

    def _follow(self, memory: GlobalMemory) -> None:
        """Set where global memory is, if it has moved or its size has changed."""
        now = (memory.arena, memory.owners, memory.extents, memory.written)
        if memory.used == self._used and all(map(operator.is_, now, self._memory)):
            return
        self._memory, self._used = now, memory.used
        arena, owners, extents = (each.ctypes.data for each in (memory.arena, memory.owners, memory.extents))
        written = memory.written.ctypes.data if memory.written is not None else 0
        for worker in self.workers:
            rows = worker.first_warps.view(np.uint64).reshape(self.shape.warps, c.WARP_BYTES // 8)
            rows[:, _MEMORY] = arena, memory.used, owners, extents
            worker.first_record.view(np.uint64)[c.WORKER_WRITTEN.at // 8] = written

    def use_divergent(self, ring: list[Worker], address: int, imports: Sequence[str]) -> None:
        """Give the workers of a ring the code for divergent warps, in this launch and in later ones."""
        table = self.addresses(imports)
        ring[0].kept.append(table)
        for worker in ring:
            for record, warps in ((worker.record, worker.warps), (worker.first_record, worker.first_warps)):
                fill(record.reshape(1, -1), {c.WORKER_DIVERGENT: address})
                fill(warps.reshape(self.shape.warps, c.WARP_BYTES), {c.WARP_TABLE: table.ctypes.data})

    # -- layout ----------------------------------------------------------------------------------------------------

    def _ring(self, memory: GlobalMemory) -> list[Worker]:
        """Return the workers of one host thread: CTAs that run together."""
        ring = [self._worker() for _ in range(self.shape.places)]
        budget = np.zeros(1, np.int64)
        self.budgets.append(budget)
        board = sparse_zeros(max(self.watch.board_bytes(memory), 64))  # committed when it is touched
        self.watch.prepare_board(board, memory)
        self.boards.append(board)
        size = math.prod(self.shape.cluster)
        peers = np.array([worker.record.ctypes.data for worker in ring], np.uint64)
        ring[0].kept.append(peers)
        for number, (worker, following) in enumerate(zip(ring, (*ring[1:], ring[0]), strict=True)):
            own = {
                c.WORKER_RANK: number % size,
                c.WORKER_CLUSTER: size,
                c.WORKER_PEERS: peers[number // size * size :].ctypes.data,
                c.WORKER_NEXT: following.record.ctypes.data,
                c.WORKER_RING: len(ring),
                c.WORKER_SLICE: SLICE if len(ring) == 1 else SLICE_TOGETHER,
                c.WORKER_BUDGET: budget.ctypes.data,
                c.WORKER_BOARD: board.ctypes.data,
            }
            fill(worker.record.reshape(1, -1), own)
            worker.first_record, worker.first_warps = worker.record.copy(), worker.warps.copy()
        return ring

    def _worker(self) -> Worker:
        plan, layout, shape, watch = self.plan, self.plan.layout, self.shape, self.watch
        shared_end = layout.shared_bytes + shape.shared_bytes
        room = (shared_end, shared_end)
        if plan.names_regions:
            room = area(shared_end, shape.shared_bytes + layout.static_shared_bytes)
        shared_limit = room[1]
        shared = _buffer(-(-shared_limit // 64) * 64 + shared_limit // 2 + 64)  # and the bytes pending at mbarriers
        regions = Regions(shared_arrays(layout, shape.shared_bytes), room, shared.ctypes.data)
        copies = COPY_CAPACITY if any(name.startswith("cp.async") for name in plan.imports) else 0
        local_bytes = -(-layout.local_bytes // 4) * 4 * LANES
        worker = Worker(
            _buffer(c.WORKER_BYTES),
            _buffer(c.WARP_BYTES * shape.warps),
            aligned_bytes(c.REPORT_BYTES * REPORT_CAPACITY),
            np.zeros(4 * len(plan.block_sizes), np.uint64),
            _buffer(max(watch.probe_bytes(shared_limit, shape.warps), 64)),
            _buffer(plan.frame_bytes * shape.warps),
            _buffer(local_bytes * shape.warps, fill=0xFF),
            regions,
        )
        watch.prepare(worker.probe, shared_limit, shape.warps)
        frames, local = worker.frames, worker.local
        local_written = _buffer(local.nbytes if watch.keeps_written and layout.local_bytes > LOCAL_START else 0)
        queues = aligned_bytes(max(copies * COPY_BYTES * shape.warps, 64))
        copies_in_bulk = BULK_CAPACITY if any(name.startswith(("bulk.", "multicast.")) for name in plan.imports) else 0
        bulk = aligned_bytes(max(copies_in_bulk * ENTRY_BYTES, 64))
        grouped = any(name.startswith(("warpgroup.", "registers.")) for name in plan.imports)
        steps = _buffer(ring_bytes(shape.warps) if grouped else 0)
        self.calls.regions[worker.record.ctypes.data] = regions
        call = self.calls.callback(worker.record.ctypes.data)
        worker.kept += [shared, local_written, queues, bulk, steps, call]
        fill(
            worker.record.reshape(1, -1),
            {
                c.WORKER_GRID: self.grid.ctypes.data,
                c.WORKER_WARPS: worker.warps.ctypes.data,
                c.WORKER_WARP_COUNT: shape.warps,
                c.WORKER_SHARED: shared.ctypes.data,
                c.WORKER_SHARED_BYTES: shared_limit,
                c.WORKER_RESERVED: layout.reserved.start,
                c.WORKER_RESERVED_BYTES: len(layout.reserved),
                c.WORKER_REPORTS: worker.reports.ctypes.data,
                c.WORKER_REPORT_CAPACITY: REPORT_CAPACITY,
                c.WORKER_STOPS_AT: shape.stops_at,
                c.WORKER_CALL_HOST: ctypes.cast(call, ctypes.c_void_p).value or 0,
                c.WORKER_WARP_ORDER: self.warp_order.ctypes.data,
                c.WORKER_BLOCK_THREADS: int(np.prod(shape.block)),
                c.WORKER_FAST: self.in_step,
                c.WORKER_FRAMES: frames.ctypes.data,
                c.WORKER_FRAME_BYTES: frames.nbytes if plan.reads_unset else 0,
                c.WORKER_PROBE: worker.probe.ctypes.data,
                c.WORKER_LOCAL_WRITTEN: local_written.ctypes.data,
                c.WORKER_LOCAL_BYTES: local_written.nbytes,
                c.WORKER_BULK: bulk.ctypes.data,
                c.WORKER_BULK_CAPACITY: copies_in_bulk,
                c.WORKER_BULK_FINISH: self.library.address("bulk.finish") if copies_in_bulk else 0,
                c.WORKER_BULK_WHEN: shape.bulk,
                c.WORKER_BULK_SEED: 1,
                c.WORKER_REGISTERS: shape.registers,
                c.WORKER_WARPGROUPS: steps.ctypes.data,
                c.WORKER_WARPGROUPS_BYTES: steps.nbytes if grouped else 0,
                c.WORKER_WARPGROUPS_FINISH: self.library.address("warpgroup.finish") if grouped else 0,
            },
        )
        same_for_all = {
            c.WARP_TABLE: self.table.ctypes.data,
            c.WARP_SHARED: shared.ctypes.data,
            c.WARP_SHARED_LIMIT: shared_limit,
            c.WARP_SHARED_DYNAMIC: shape.shared_bytes,
            c.WARP_SHARED_OWNERS: regions.owners.ctypes.data,
            c.WARP_SHARED_OBJECTS: regions.extents.ctypes.data,
            c.WARP_PARAMS: self.params.ctypes.data,
            c.WARP_PARAM_BYTES: plan.param_bytes,
            c.WARP_LOCAL_LIMIT: layout.local_bytes,
            c.WARP_WORKER: worker.record.ctypes.data,
            c.WARP_HOME: worker.record.ctypes.data,
            c.WARP_COPY_CAPACITY: copies,
            c.WARP_COUNT: shape.warps,
            c.WARP_NSMID: shape.sms,
            c.WARP_COUNTS: worker.counts.ctypes.data,
        }
        number = np.arange(shape.warps, dtype=np.uint64)
        own = {
            c.WARP_FRAME: frames.ctypes.data + number * plan.frame_bytes,
            c.WARP_LOCAL: local.ctypes.data + number * local_bytes,
            c.WARP_COPIES: queues.ctypes.data + number * copies * COPY_BYTES,
            c.WARP_LOCAL_WRITTEN: local_written.ctypes.data + number * local_bytes,
        }
        worker.warps[:] = _placed_threads(shape.grid, shape.block)
        rows = worker.warps.reshape(shape.warps, c.WARP_BYTES)
        fill(rows, same_for_all)
        rows.view(np.uint32)[:, c.WARP_CLUSTER.at // 4 :][:, :3] = shape.cluster
        for where, values in own.items():
            rows.view(np.uint64)[:, where.at // 8] = values
        return worker


_kept: WeakKeyDictionary[Program, dict[tuple[str, Shape], Records]] = WeakKeyDictionary()
_lock = threading.Lock()


def take_records(program: Program, shape: Shape, watch: Instrumentation, memory: GlobalMemory) -> Records:
    """Return records for a launch: kept ones, which no other launch uses now, or new ones."""
    with _lock:
        found = _kept.get(program, {}).pop((watch.key, shape), None)
    return found or Records(program, shape, watch, memory)


def keep_records(program: Program, records: Records) -> None:
    """Keep records for the next launch; those of the shape that was launched longest ago make room."""
    if not records.reusable:
        return
    with _lock:
        kept = _kept.setdefault(program, {})
        kept[records.watch.key, records.shape] = records
        if len(kept) > MOST_KEPT:
            del kept[next(iter(kept))]


def keeps_nothing(watch: Instrumentation) -> bool:
    """Return whether a watcher has no memory that it reads after a launch."""
    return not (watch.keeps_written or watch.keeps_before or watch.wants("probe_bytes") or watch.wants("board_bytes"))


def fill(records: Bytes, values: Mapping[c.Field, int]) -> None:
    """Set fields to the same value in every record."""
    for narrow, kind in ((True, np.uint32), (False, np.uint64)):
        chosen = {
            where.at // (4 if narrow else 8): value for where, value in values.items() if (where.ty == "i32") == narrow
        }
        records.view(kind)[:, list(chosen)] = np.array(list(chosen.values()), np.uint64).astype(kind)


def read_field(record: Bytes, where: c.Field) -> int:
    """Return the value of a 32-bit field."""
    return int(record[where.at : where.at + 4].view(np.uint32)[0])


def _buffer(size: int, *, fill: int = 0) -> Bytes:
    """Return bytes at a 64-byte boundary, all `fill`."""
    memory = aligned_bytes(size)
    memory[:] = fill
    return memory


@functools.lru_cache(maxsize=64)
def _placed_threads(grid: Dim3, block: Dim3) -> Bytes:
    """Return the warp records with the values common to all CTAs: tid of the lanes, sizes of grid and block."""
    x, y, z = block
    rows = np.zeros((-(-x * y * z // LANES), c.WARP_BYTES), np.uint8)
    for number, row in enumerate(rows):
        words = row.view(np.uint32)
        words[c.WARP_ID.at // 4] = number
        threads = number * LANES + np.arange(LANES)
        for axis, values in enumerate((threads % x, threads // x % y, threads // (x * y))):
            words[c.WARP_TID.at // 4 + LANES * axis :][:LANES] = values
        words[c.WARP_NCTAID.at // 4 :][:3] = grid
        words[c.WARP_NTID.at // 4 :][:3] = block
    return rows.reshape(-1)
