"""Runs a Program: lays out the records, lets worker threads take CTAs, collects their reports."""

import ctypes
import functools
import hashlib
import math
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from weft.core.chips import Chip, chip_of
from weft.core.errors import LaunchError, ResourceError
from weft.core.records import Dim3, Visits

from . import context as c
from .findings import REPORT, findings_of
from .host_calls import HostCalls
from .ir import LANES
from .launch_spec import DeviceRun, LaunchSpec
from .layout import GRID_WORKSPACE, shared_arrays
from .memory import LOCAL_START, GlobalMemory, aligned_bytes
from .places import Places
from .program import Program, runs_of_blocks
from .regions import Regions, area
from .residency import resident_ctas
from .runtime.copies import COPY_BYTES
from .runtime.library import Library, library
from .runtime.watch import Instrumentation, Scene

MAX_THREADS = 1024
LARGEST_GRID, LARGEST_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
"""Limits in x, y and z, on every GPU since sm_30 (CUDA C++ Programming Guide, technical specifications)."""
REPORT_CAPACITY = 4096
COPY_CAPACITY = 512
SLICE = 4096
SLICE_TOGETHER = 256
"""Loop iterations of a turn if CTAs may wait for each other: the most that a spinning warp wastes before others run."""
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
    ctas: Sequence[int] | None = None,
    chip: Chip | None = None,
) -> DeviceRun:
    """Launch once. `schedule` other than 0 permutes the order of CTAs and warps, which race-free kernels do not notice.

    `ctas` are the numbers of the CTAs to run (x first, then y, then z); None runs all. The kernel sees the entire grid.
    `chip` decides how many CTAs are resident together (None: the smallest GPU of the program's architecture).
    """
    suited = program.suited_to(launch.block)
    return _Run(suited, launch, memory, globals_at, watch, chip).execute(threads, schedule, ctas)


@dataclass
class _Worker:
    """The records of a running CTA, and the objects that keep them alive."""

    record: npt.NDArray[np.uint8]
    warps: npt.NDArray[np.uint8]
    reports: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.uint64]
    probe: npt.NDArray[np.uint8]
    kept: list[Any] = field(default_factory=list)


class _Run:
    def __init__(
        self,
        program: Program,
        launch: LaunchSpec,
        memory: GlobalMemory,
        globals_at: Mapping[str, int],
        watch: Instrumentation,
        chip: Chip | None,
    ) -> None:
        self.chip = chip
        self.program, self.launch, self.memory, self.watch = program, launch, memory, watch
        self.globals_at = globals_at
        if GRID_WORKSPACE.name in globals_at:  # a stopped launch may have left it in use
            memory.write(globals_at[GRID_WORKSPACE.name], bytes(GRID_WORKSPACE.size_bytes))
        self.before: npt.NDArray[np.uint8] | None = None
        self.written_before = np.zeros(0, np.uint8)
        if watch.keeps_written or watch.keeps_before:
            self.before = memory.arena[: memory.used].copy()
        if watch.keeps_written:
            self.written_before = memory.keep_written()[: memory.used].copy()
        self.plan = program.plan
        self.threads = int(np.prod(launch.block))
        self.ctas = math.prod(launch.grid)
        self.warps = -(-self.threads // LANES)
        needed = max((at + size for _, at, size in self.plan.params), default=0)
        self.param_bytes = needed
        _check(launch, self.threads, needed, self.plan.layout.param_bytes)
        self.params = _params(
            launch.params, self.plan.layout.param_bytes, [globals_at[variable.name] for variable in self.plan.globals]
        )
        self.library: Library = library(watch)
        self.table = self._table(self.plan.imports)
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self.library.address("run"))
        self.grid = _buffer(c.GRID_BYTES)
        self.calls = HostCalls(program.source, memory)
        self.kept: list[Any] = []
        self.stopped: list[int] = []
        """CTAs that ended the launch."""
        self.boards: list[npt.NDArray[np.uint8]] = []
        self.visits: list[int] = []
        """How often each block ran, after the launch."""

    def _table(self, imports: tuple[str, ...]) -> npt.NDArray[np.uint64]:
        return np.array([self.library.address(name) for name in imports] or [0], np.uint64)

    def execute(self, threads: int, schedule: int, chosen: Sequence[int] | None) -> DeviceRun:
        self.schedule, self.chosen = schedule, chosen
        order, warp_order = self._orders(schedule, chosen)
        self.order = order
        total = self.ctas if order is None else len(order)
        count = 1 if self.plan.ordered else max(1, min(threads, total))
        _set(self.grid, c.GRID_TOTAL, total)
        _set(self.grid, c.GRID_ORDER, order.ctypes.data if order is not None else 0)
        for axis, size in enumerate(self.launch.grid):
            _set(self.grid, c.Field(c.GRID_DIM.at + 4 * axis, "i32"), size)
        places = min(total, self._resident()) if self.plan.waits else 1
        rings = [self._ring(places, warp_order) for _ in range(count)]
        self.probe = rings[0][0].probe
        failures: list[BaseException] = []
        others = [threading.Thread(target=self._drive, args=(ring, failures)) for ring in rings[1:]]
        for thread in others:
            thread.start()
        self._drive(rings[0], failures)
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]
        return self._outcome([worker for ring in rings for worker in ring])

    def _resident(self) -> int:
        return resident_ctas(self.plan, self.launch, self.chip or chip_of(self.plan.arch))

    def _again(self, watch: Instrumentation, ctas: Sequence[int] | None) -> npt.NDArray[np.uint8]:
        """Run CTAs again from the initial memory, in the same order, with another watcher; return its memory."""
        with self._from_before():
            other = _Run(self.program, self.launch, self.memory, self.globals_at, watch, self.chip)
            # If CTAs depend on each other's results, a single CTA would run differently.
            other.execute(1, self.schedule, self.chosen if self.plan.ordered or ctas is None else ctas)
        return other.probe

    def _trace(self, watch: Instrumentation) -> tuple[bytes, tuple[int, ...]]:
        """Run everything again from the initial memory with another watcher; return a digest of the final state, and
        how often each block ran.

        A loop that runs too long is stopped early: the trace differs already.
        """
        launch = replace(self.launch, max_steps=min(self.launch.max_steps, 4 * sum(self.visits) + SLICE))
        with self._from_before():
            other = _Run(self.program, launch, self.memory, self.globals_at, watch, self.chip)
            outcome = other.execute(1, self.schedule, self.chosen)
            digest = hashlib.sha256(self.memory.arena[: self.memory.used].tobytes())
        digest.update(repr((outcome.findings, outcome.printed)).encode())
        return digest.digest(), tuple(other.visits)

    @contextmanager
    def _from_before(self) -> Iterator[None]:
        """Restore the initial memory inside the context, then the current one."""
        memory = self.memory
        assert self.before is not None
        now = memory.arena[: memory.used].copy()
        memory.arena[: memory.used] = self.before
        try:
            yield
        finally:
            memory.arena[: memory.used] = now

    def _orders(
        self, schedule: int, chosen: Sequence[int] | None
    ) -> tuple[npt.NDArray[np.uint32] | None, npt.NDArray[np.uint32]]:
        """Return the order of CTAs (None: all, by number) and of warps; chosen CTAs run in their order among all."""
        warps = list(range(self.warps))
        if not schedule and chosen is None:
            return None, np.array(warps, np.uint32)
        ctas = list(range(self.ctas))
        if schedule:
            shuffler = random.Random(schedule)
            shuffler.shuffle(ctas)
            shuffler.shuffle(warps)
        if chosen is not None:
            wanted = frozenset(chosen)
            if not wanted or not wanted <= frozenset(ctas):
                raise LaunchError(f"the CTAs to run must be among the {self.ctas} CTAs of grid {self.launch.grid}")
            ctas = [cta for cta in ctas if cta in wanted]
        return np.array(ctas, np.uint32), np.array(warps, np.uint32)

    def _drive(self, ring: list[_Worker], failures: list[BaseException]) -> None:
        """Run until the grid is done; a worker that needs the divergent code gets it and continues."""
        try:
            while (status := self.entry(ring[0].record.ctypes.data)) == c.NEED_DIVERGENT:
                address, imports = self.program.divergent()
                table = self._table(imports)
                ring[0].kept.append(table)
                for worker in ring:
                    _set(worker.record, c.WORKER_DIVERGENT, address)
                    for number in range(self.warps):
                        _set(_row(worker.warps, number, c.WARP_BYTES), c.WARP_TABLE, table.ctypes.data)
            busy = int(ring[0].record[c.WORKER_BUSY.at :][:4].view(np.uint32)[0])
            if status == c.STOPPED and busy:  # otherwise another thread's CTA ended the launch
                self.stopped.append(int(ring[0].record[c.WORKER_CTA.at :][:4].view(np.uint32)[0]))
        except BaseException as error:
            failures.append(error)

    def _in_time(self) -> npt.NDArray[np.bool_] | None:
        """Return whether each CTA counts, by its number: of a stopped launch, those up to the first that stopped it.

        CTAs start in order and run to their end, so all before that one did; which of the others ran as well depends on
        the number of threads. None: all of them count.
        """
        if not self.stopped or self.plan.ordered:
            return None
        position = np.zeros(self.ctas, np.int64)
        ran = np.arange(self.ctas) if self.order is None else self.order
        position[ran] = np.arange(len(ran))
        return np.asarray(position <= position[self.stopped].min())

    def _ring(self, places: int, warp_order: npt.NDArray[np.uint32]) -> list[_Worker]:
        """Return the records of one host thread: `places` CTAs that run together."""
        ring = [self._worker(warp_order) for _ in range(places)]
        budget = np.array([self.launch.max_steps], np.int64)
        ring[0].kept.append(budget)
        board = np.zeros(max(self.watch.board_bytes(self.memory), 64), np.uint8)  # committed when it is touched
        self.watch.prepare_board(board, self.memory)
        self.boards.append(board)
        for worker, following in zip(ring, (*ring[1:], ring[0]), strict=True):
            own = {
                c.WORKER_NEXT: following.record.ctypes.data,
                c.WORKER_RING: places,
                c.WORKER_SLICE: SLICE if places == 1 else SLICE_TOGETHER,
                c.WORKER_BUDGET: budget.ctypes.data,
                c.WORKER_BOARD: board.ctypes.data,
            }
            _fill(worker.record.reshape(1, -1), own)
        return ring

    def _worker(self, warp_order: npt.NDArray[np.uint32]) -> _Worker:
        plan, layout = self.plan, self.plan.layout
        shared_end = layout.shared_bytes + self.launch.shared_bytes
        room = (shared_end, shared_end)
        if plan.names_regions:
            room = area(shared_end, self.launch.shared_bytes + layout.static_shared_bytes)
        shared_limit = room[1]
        shared = _buffer(shared_limit + 64)
        arrays = shared_arrays(layout, self.launch.shared_bytes)
        regions = Regions(arrays, room, shared.ctypes.data)
        copies = COPY_CAPACITY if any(name.startswith("cp.async") for name in plan.imports) else 0
        worker = _Worker(
            _buffer(c.WORKER_BYTES),
            _buffer(c.WARP_BYTES * self.warps),
            aligned_bytes(c.REPORT_BYTES * REPORT_CAPACITY),
            np.zeros(4 * len(plan.block_sizes), np.uint64),
            _buffer(max(self.watch.probe_bytes(shared_limit, self.warps), 64)),
        )
        self.watch.prepare(worker.probe, shared_limit, self.warps)
        frames = _buffer(plan.frame_bytes * self.warps)
        local_bytes = -(-layout.local_bytes // 4) * 4 * LANES
        local = _buffer(local_bytes * self.warps, fill=0xFF)
        local_written = _buffer(local.nbytes if self.watch.keeps_written and layout.local_bytes > LOCAL_START else 0)
        queues = aligned_bytes(max(copies * COPY_BYTES * self.warps, 64))
        worker.kept += [regions, shared, frames, local, local_written, queues, warp_order]
        self.calls.regions[worker.record.ctypes.data] = regions
        call = self.calls.callback(worker.record.ctypes.data)
        worker.kept.append(call)
        _fill(
            worker.record.reshape(1, -1),
            {
                c.WORKER_GRID: self.grid.ctypes.data,
                c.WORKER_WARPS: worker.warps.ctypes.data,
                c.WORKER_WARP_COUNT: self.warps,
                c.WORKER_SHARED: shared.ctypes.data,
                c.WORKER_SHARED_BYTES: shared_limit,
                c.WORKER_REPORTS: worker.reports.ctypes.data,
                c.WORKER_REPORT_CAPACITY: REPORT_CAPACITY,
                c.WORKER_CALL_HOST: ctypes.cast(call, ctypes.c_void_p).value or 0,
                c.WORKER_WARP_ORDER: warp_order.ctypes.data,
                c.WORKER_BLOCK_THREADS: self.threads,
                c.WORKER_FAST: self.program.in_step,
                c.WORKER_FRAMES: frames.ctypes.data,
                c.WORKER_FRAME_BYTES: frames.nbytes if plan.reads_unset else 0,
                c.WORKER_PROBE: worker.probe.ctypes.data,
                c.WORKER_WRITTEN: self.memory.written.ctypes.data if self.memory.written is not None else 0,
                c.WORKER_LOCAL_WRITTEN: local_written.ctypes.data,
                c.WORKER_LOCAL_BYTES: local_written.nbytes,
            },
        )
        same_for_all = {
            c.WARP_TABLE: self.table.ctypes.data,
            c.WARP_SHARED: shared.ctypes.data,
            c.WARP_SHARED_LIMIT: shared_limit,
            c.WARP_SHARED_DYNAMIC: self.launch.shared_bytes,
            c.WARP_SHARED_OWNERS: regions.owners.ctypes.data,
            c.WARP_SHARED_OBJECTS: regions.extents.ctypes.data,
            c.WARP_GLOBAL: self.memory.arena.ctypes.data,
            c.WARP_GLOBAL_BYTES: self.memory.used,
            c.WARP_OWNERS: self.memory.owners.ctypes.data,
            c.WARP_ALLOCATIONS: self.memory.extents.ctypes.data,
            c.WARP_PARAMS: self.params.ctypes.data,
            c.WARP_PARAM_BYTES: self.param_bytes,
            c.WARP_LOCAL_LIMIT: layout.local_bytes,
            c.WARP_WORKER: worker.record.ctypes.data,
            c.WARP_COPY_CAPACITY: copies,
            c.WARP_COUNT: self.warps,
            c.WARP_NSMID: self.launch.sms,
            c.WARP_COUNTS: worker.counts.ctypes.data,
        }
        number = np.arange(self.warps, dtype=np.uint64)
        own = {
            c.WARP_FRAME: frames.ctypes.data + number * plan.frame_bytes,
            c.WARP_LOCAL: local.ctypes.data + number * local_bytes,
            c.WARP_COPIES: queues.ctypes.data + number * copies * COPY_BYTES,
            c.WARP_LOCAL_WRITTEN: local_written.ctypes.data + number * local_bytes,
        }
        worker.warps[:] = _placed_threads(self.launch.grid, self.launch.block)
        rows = worker.warps.reshape(self.warps, c.WARP_BYTES)
        _fill(rows, same_for_all)
        for where, values in own.items():
            rows.view(np.uint64)[:, where.at // 8] = values
        return worker

    def _places(self) -> Places:
        regions = {region: None for worker in self.calls.regions.values() for region in worker.seen}
        layout = self.plan.layout
        return Places(self.memory, layout, self.launch.shared_bytes, self.param_bytes, tuple(regions))

    def _outcome(self, workers: list[_Worker]) -> DeviceRun:
        sizes = (*self.plan.chain_sizes, *self.plan.block_sizes)
        totals: list[int] = np.add.reduce([worker.counts for worker in workers]).tolist()
        counts, ways = totals[: len(sizes)], totals[len(sizes) :]
        self.visits = counts
        instructions = sum(visits * size for visits, size in zip(counts, sizes, strict=True))
        reports = []
        for worker in workers:
            count = min(int(worker.record[c.WORKER_REPORT_COUNT.at :][:4].view(np.uint32)[0]), REPORT_CAPACITY)
            reports.append(worker.reports[: count * c.REPORT_BYTES])
        gathered = np.concatenate(reports)
        in_time = self._in_time()
        if in_time is not None:
            gathered = gathered[np.repeat(in_time[gathered.view(REPORT)["cta"]], c.REPORT_BYTES)]
            self.calls.keep_only(in_time, self.launch.grid)
        findings = findings_of(gathered, self.launch.grid, self.program.source, self._places(), self.watch.codes)
        if self.before is not None and (gathered.size or self.watch.reviews_always):
            scene = Scene(
                self.program.source,
                self.plan.layout,
                self.launch,
                self.memory,
                self.before,
                self.written_before,
                self.globals_at,
                gathered.view(REPORT),
                instructions,
                self._places(),
                tuple(self.boards),
                self._again,
                self._trace,
            )
            findings = self.watch.review(findings, scene)
        findings += tuple(self.calls.findings())
        counters = {"inst_executed": instructions}
        for worker in workers:
            for name, value in self.watch.counters(worker.probe).items():
                counters[name] = counters.get(name, 0) + value
        counters.update(self.watch.conclude(self.program.source, counts, self.boards))
        visits = Visits(
            self.plan.ptx_digest,
            self.plan.entry,
            runs_of_blocks(self.plan.chain_sizes, counts),
            frozenset(divmod(number, 2) for number, marked in enumerate(ways) if marked),
        )
        return DeviceRun(findings, self.calls.printed(), instructions, counters, visits)


def _check(launch: LaunchSpec, threads: int, needed: int, param_bytes: int) -> None:
    if not 1 <= threads <= MAX_THREADS:
        raise ResourceError(f"block {launch.block} has {threads} threads; a block has 1 to {MAX_THREADS}")
    if any(size < 1 for size in (*launch.grid, *launch.block)):
        raise LaunchError(f"grid {launch.grid} and block {launch.block} must be at least 1 in every dimension")
    for name, sizes, limits in (("grid", launch.grid, LARGEST_GRID), ("block", launch.block, LARGEST_BLOCK)):
        if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
            raise LaunchError(f"{name} {sizes} is larger than {limits}, the limit of a GPU")
    if not needed <= len(launch.params) <= param_bytes:
        raise LaunchError(f"the launch has {len(launch.params)} bytes of parameters; the kernel takes {needed}")


def _params(given: bytes, size: int, globals_at: list[int]) -> npt.NDArray[np.uint8]:
    """Return the parameter block, followed by the addresses of the module's variables."""
    block = _buffer(size + 8 * len(globals_at) + 64)
    block[: len(given)] = np.frombuffer(given, np.uint8)
    block[size : size + 8 * len(globals_at)] = np.array(globals_at, np.uint64).view(np.uint8)
    return block


def _buffer(size: int, *, fill: int = 0) -> npt.NDArray[np.uint8]:
    """Return bytes at a 64-byte boundary, all `fill`."""
    memory = aligned_bytes(size)
    memory[:] = fill
    return memory


def _row(records: npt.NDArray[np.uint8], number: int, size: int) -> npt.NDArray[np.uint8]:
    return records[number * size : (number + 1) * size]


def _fill(records: npt.NDArray[np.uint8], values: Mapping[c.Field, int]) -> None:
    """Set fields to the same value in every record."""
    for narrow, kind in ((True, np.uint32), (False, np.uint64)):
        chosen = {
            where.at // (4 if narrow else 8): value for where, value in values.items() if (where.ty == "i32") == narrow
        }
        records.view(kind)[:, list(chosen)] = np.array(list(chosen.values()), np.uint64).astype(kind)


@functools.lru_cache(maxsize=64)
def _placed_threads(grid: Dim3, block: Dim3) -> npt.NDArray[np.uint8]:
    """Return the warp records with the values common to all CTAs: tid of the lanes, sizes of grid and block."""
    x, y, z = block
    rows = np.zeros((-(-x * y * z // LANES), c.WARP_BYTES), np.uint8)
    for number, row in enumerate(rows):
        _set(row, c.WARP_ID, number)
        threads = number * LANES + np.arange(LANES)
        for axis, values in enumerate((threads % x, threads // x % y, threads // (x * y))):
            row[c.WARP_TID.at + 128 * axis :][:128] = values.astype(np.uint32).view(np.uint8)
        for axis in range(3):
            _set(row, c.Field(c.WARP_NCTAID.at + 4 * axis, "i32"), grid[axis])
            _set(row, c.Field(c.WARP_NTID.at + 4 * axis, "i32"), block[axis])
    return rows.reshape(-1)


def _set(record: npt.NDArray[np.uint8], where: c.Field, value: int) -> None:
    size = 4 if where.ty == "i32" else 8
    record[where.at : where.at + size] = np.frombuffer(
        (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8
    )
