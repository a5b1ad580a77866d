"""Run a Program: lay out the records, let worker threads take CTAs, gather what they report."""

import ctypes
import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.core.errors import LaunchError

from . import context as c
from .findings import findings_of
from .host_calls import HostCalls
from .ir import LANES
from .launch_spec import LaunchSpec, Outcome
from .layout import shared_objects
from .memory import SHARED_GRANULE, SHARED_START, GlobalMemory, aligned_bytes
from .program import Program
from .runtime.copies import COPY_BYTES
from .runtime.library import Library, library
from .runtime.watch import Instrumentation

MAX_THREADS = 1024
REPORT_CAPACITY = 4096
COPY_CAPACITY = 512
SLICE = 4096
PLAIN = Instrumentation()


def run(
    program: Program,
    launch: LaunchSpec,
    memory: GlobalMemory,
    *,
    globals_at: Mapping[str, int],
    threads: int = 1,
    schedule: int = 0,
    watch: Instrumentation = PLAIN,
) -> Outcome:
    """Launch once. `schedule` other than 0 permutes the order of CTAs and warps; race-free kernels do not notice."""
    return _Run(program.suited_to(launch.block), launch, memory, globals_at, watch).execute(threads, schedule)


@dataclass
class _Worker:
    """The records of one host thread, and what keeps them alive."""

    record: npt.NDArray[np.uint8]
    warps: npt.NDArray[np.uint8]
    reports: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.uint64]
    probe: npt.NDArray[np.uint8]
    kept: list[Any] = field(default_factory=list)


class _Run:
    def __init__(
        self, program: Program, launch: LaunchSpec, memory: GlobalMemory, globals_at: Mapping[str, int],
        watch: Instrumentation,
    ) -> None:  # fmt: skip
        self.program, self.launch, self.memory, self.watch = program, launch, memory, watch
        self.plan = program.plan
        self.threads = int(np.prod(launch.block))
        self.ctas = int(np.prod(launch.grid))
        self.warps = -(-self.threads // LANES)
        needed = max((at + size for _, at, size in self.plan.params), default=0)
        _check(launch, self.threads, needed, self.plan.layout.param_bytes)
        self.params = _params(launch.params, self.plan.layout.param_bytes,
                              [globals_at[variable.name] for variable in self.plan.globals])  # fmt: skip
        self.library: Library = library(watch)
        self.table = self._table(self.plan.imports)
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.library.address("run"))
        self.grid = _buffer(c.GRID_BYTES)
        self.calls = HostCalls(program.source, memory)
        self.kept: list[Any] = []

    def _table(self, imports: tuple[str, ...]) -> npt.NDArray[np.uint64]:
        return np.array([self.library.address(name) for name in imports] or [0], np.uint64)

    def execute(self, threads: int, schedule: int) -> Outcome:
        count = 1 if self.plan.ordered else max(1, min(threads, self.ctas))
        order, warp_order = self._orders(schedule)
        _set(self.grid, c.GRID_TOTAL, self.ctas)
        _set(self.grid, c.GRID_ORDER, order.ctypes.data if order is not None else 0)
        for axis, size in enumerate(self.launch.grid):
            _set(self.grid, c.Field(c.GRID_DIM.at + 4 * axis, "i32"), size)
        workers = [self._worker(warp_order) for _ in range(count)]
        failures: list[BaseException] = []
        others = [threading.Thread(target=self._drive, args=(worker, failures)) for worker in workers[1:]]
        for thread in others:
            thread.start()
        self._drive(workers[0], failures)
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]
        return self._outcome(workers)

    def _orders(self, schedule: int) -> tuple[npt.NDArray[np.uint32] | None, npt.NDArray[np.uint32]]:
        warps = list(range(self.warps))
        if not schedule:
            return None, np.array(warps, np.uint32)
        shuffler = random.Random(schedule)
        ctas = list(range(self.ctas))
        shuffler.shuffle(ctas)
        shuffler.shuffle(warps)
        return np.array(ctas, np.uint32), np.array(warps, np.uint32)

    def _drive(self, worker: _Worker, failures: list[BaseException]) -> None:
        """Run until the grid is done; a worker that needs the divergent copy gets it and goes on."""
        try:
            while self.entry(worker.record.ctypes.data) == c.NEED_MASKED:
                address, imports = self.program.divergent()
                table = self._table(imports)
                worker.kept.append(table)
                _set(worker.record, c.WORKER_MASKED, address)
                for number in range(self.warps):
                    _set(_row(worker.warps, number, c.WARP_BYTES), c.WARP_TABLE, table.ctypes.data)
        except BaseException as error:
            failures.append(error)

    def _worker(self, warp_order: npt.NDArray[np.uint32]) -> _Worker:
        plan, layout = self.plan, self.plan.layout
        shared_limit = layout.shared_bytes + self.launch.shared_bytes
        shared = _buffer(shared_limit + 64)
        owners, extents = _shared_map(shared_objects(layout, self.launch.shared_bytes), shared_limit)
        copies = COPY_CAPACITY if any(name.startswith("cp.async") for name in plan.imports) else 0
        worker = _Worker(
            _buffer(c.WORKER_BYTES), _buffer(c.WARP_BYTES * self.warps), _buffer(c.REPORT_BYTES * REPORT_CAPACITY),
            np.zeros(2 * len(plan.block_sizes), np.uint64),
            _buffer(max(self.watch.probe_bytes(shared_limit, self.warps), 64)),
        )  # fmt: skip
        self.watch.prepare(worker.probe, shared_limit, self.warps)
        frames = _buffer(plan.frame_bytes * self.warps)
        local_bytes = -(-layout.local_bytes // 4) * 4 * LANES
        local = _buffer(local_bytes * self.warps, fill=0xFF)
        queues = _buffer(max(copies * COPY_BYTES * self.warps, 64))
        worker.kept += [owners, extents, shared, frames, local, queues, warp_order]
        call = self.calls.callback(worker.record.ctypes.data)
        worker.kept.append(call)
        _fill(
            worker.record,
            {
                c.WORKER_GRID: self.grid.ctypes.data,
                c.WORKER_WARPS: worker.warps.ctypes.data,
                c.WORKER_WARP_COUNT: self.warps,
                c.WORKER_SHARED: shared.ctypes.data,
                c.WORKER_SHARED_BYTES: shared_limit,
                c.WORKER_SLICE: SLICE,
                c.WORKER_BUDGET: max(self.launch.max_steps // SLICE, 1),
                c.WORKER_REPORTS: worker.reports.ctypes.data,
                c.WORKER_REPORT_CAPACITY: REPORT_CAPACITY,
                c.WORKER_CALL_HOST: ctypes.cast(call, ctypes.c_void_p).value or 0,
                c.WORKER_WARP_ORDER: warp_order.ctypes.data,
                c.WORKER_BLOCK_THREADS: self.threads,
                c.WORKER_FAST: self.program.in_step,
                c.WORKER_FRAMES: frames.ctypes.data,
                c.WORKER_FRAME_BYTES: frames.nbytes if plan.reads_unset else 0,
                c.WORKER_PROBE: worker.probe.ctypes.data,
            },
        )
        same_for_all = {
            c.WARP_TABLE: self.table.ctypes.data,
            c.WARP_SHARED: shared.ctypes.data,
            c.WARP_SHARED_LIMIT: shared_limit,
            c.WARP_SHARED_DYNAMIC: self.launch.shared_bytes,
            c.WARP_SHARED_OWNERS: owners.ctypes.data,
            c.WARP_SHARED_OBJECTS: extents.ctypes.data,
            c.WARP_GLOBAL: self.memory.arena.ctypes.data,
            c.WARP_GLOBAL_BYTES: self.memory.used,
            c.WARP_OWNERS: self.memory.owners.ctypes.data,
            c.WARP_ALLOCATIONS: self.memory.extents.ctypes.data,
            c.WARP_PARAMS: self.params.ctypes.data,
            c.WARP_PARAM_BYTES: layout.param_bytes,
            c.WARP_LOCAL_LIMIT: layout.local_bytes,
            c.WARP_WORKER: worker.record.ctypes.data,
            c.WARP_COPY_CAPACITY: copies,
            c.WARP_COUNT: self.warps,
            c.WARP_COUNTS: worker.counts.ctypes.data,
        }
        for number in range(self.warps):
            warp = _row(worker.warps, number, c.WARP_BYTES)
            own = {
                c.WARP_ID: number,
                c.WARP_FRAME: frames.ctypes.data + number * plan.frame_bytes,
                c.WARP_LOCAL: local.ctypes.data + number * local_bytes,
                c.WARP_COPIES: queues.ctypes.data + number * copies * COPY_BYTES,
            }
            _fill(warp, {**same_for_all, **own})
            self._place_threads(warp, number)
        return worker

    def _place_threads(self, warp: npt.NDArray[np.uint8], number: int) -> None:
        """tid of the 32 lanes, and the sizes of grid and block."""
        threads = number * LANES + np.arange(LANES)
        x, y, _ = self.launch.block
        for axis, values in enumerate((threads % x, threads // x % y, threads // (x * y))):
            warp[c.WARP_TID.at + 128 * axis :][:128] = values.astype(np.uint32).view(np.uint8)
        for axis in range(3):
            _set(warp, c.Field(c.WARP_NCTAID.at + 4 * axis, "i32"), self.launch.grid[axis])
            _set(warp, c.Field(c.WARP_NTID.at + 4 * axis, "i32"), self.launch.block[axis])

    def _outcome(self, workers: list[_Worker]) -> Outcome:
        counts: list[int] = np.add.reduce([worker.counts for worker in workers]).tolist()
        sizes = (*self.plan.chain_sizes, *self.plan.block_sizes)
        instructions = sum(visits * size for visits, size in zip(counts, sizes, strict=True))
        reports = []
        for worker in workers:
            count = min(int(worker.record[c.WORKER_REPORT_COUNT.at :][:4].view(np.uint32)[0]), REPORT_CAPACITY)
            reports.append(worker.reports[: count * c.REPORT_BYTES])
        findings = findings_of(
            np.concatenate(reports), self.launch.grid, self.program.source, self.memory, self.watch.codes
        )
        findings += tuple(self.calls.findings())
        counters = {"inst_executed": instructions}
        for worker in workers:
            for name, value in self.watch.counters(worker.probe).items():
                counters[name] = counters.get(name, 0) + value
        return Outcome(findings, self.calls.printed(), instructions, counters)


def _check(launch: LaunchSpec, threads: int, needed: int, param_bytes: int) -> None:
    if not 1 <= threads <= MAX_THREADS:
        raise LaunchError(f"block {launch.block} has {threads} threads; a block takes 1 to {MAX_THREADS}")
    if any(size < 1 for size in (*launch.grid, *launch.block)):
        raise LaunchError(f"grid {launch.grid} and block {launch.block} must be at least 1 in every direction")
    if not needed <= len(launch.params) <= param_bytes:
        raise LaunchError(f"{len(launch.params)} bytes of parameters; the kernel takes {needed}")


def _params(given: bytes, size: int, globals_at: list[int]) -> npt.NDArray[np.uint8]:
    """The parameter block, followed by the addresses of the module's variables."""
    block = _buffer(size + 8 * len(globals_at) + 64)
    block[: len(given)] = np.frombuffer(given, np.uint8)
    block[size : size + 8 * len(globals_at)] = np.array(globals_at, np.uint64).view(np.uint8)
    return block


def _shared_map(objects: list[tuple[int, int]], limit: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The maps of `runtime/bounds.py` for shared memory: granule → array, array → offset and size."""
    owners = np.zeros(limit // SHARED_GRANULE + 1, np.uint32)
    extents = np.zeros((len(objects) + 1, 2), np.int64)
    for number, (address, size) in enumerate(objects, start=1):
        start = address - SHARED_START
        extents[number] = start, size
        owners[start // SHARED_GRANULE : -(-(start + size) // SHARED_GRANULE)] = number
    return owners, extents


def _buffer(size: int, *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Bytes at a 64-byte boundary, all `fill`."""
    memory = aligned_bytes(size)
    memory[:] = fill
    return memory


def _row(records: npt.NDArray[np.uint8], number: int, size: int) -> npt.NDArray[np.uint8]:
    return records[number * size : (number + 1) * size]


def _fill(record: npt.NDArray[np.uint8], values: Mapping[c.Field, int]) -> None:
    for where, value in values.items():
        _set(record, where, value)


def _set(record: npt.NDArray[np.uint8], where: c.Field, value: int) -> None:
    size = 4 if where.ty == "i32" else 8
    record[where.at : where.at + size] = np.frombuffer(
        (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8
    )
