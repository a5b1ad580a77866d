"""Runs a Program: lays out the records, lets worker threads take CTAs, collects their reports."""

import functools
import hashlib
import math
import operator
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from weft.core.chips import Chip, chip_of
from weft.core.errors import LaunchError, ResourceError
from weft.core.records import Dim3, Finding, Visits

from . import context as c
from .clusters import cluster_of, cluster_with, members
from .device_heap import HeapState, heap_in, heap_of, repeated
from .findings import REPORT, findings_of, in_flight_findings
from .host_threads import run_together
from .ir import LANES
from .launch_records import REPORT_CAPACITY as REPORT_CAPACITY
from .launch_records import SLICE, Shape, Worker, keep_records, read_field, take_records
from .launch_spec import DeviceRun, LaunchSpec, pool_registers
from .layout import GRID_WORKSPACE
from .memory import GlobalMemory
from .places import Places
from .program import Program, runs_of_blocks
from .reach import reachable
from .residency import resident_ctas
from .runtime.watch import Instrumentation, Scene

MAX_THREADS = 1024
LARGEST_GRID, LARGEST_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)
"""Limits in x, y and z, on every GPU since sm_30 (CUDA C++ Programming Guide, technical specifications)."""
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
    watch = watch.for_launch(suited.plan, math.prod(launch.grid))
    return _Run(suited, launch, memory, globals_at, watch, chip).execute(threads, schedule, ctas)


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
        self.plan = program.plan
        self.heap_before: HeapState | None = None
        heap = heap_of(memory) if self.plan.uses_heap else heap_in(memory)
        if heap is not None:
            heap.begin()
            if watch.keeps_written or watch.keeps_before:
                self.heap_before = heap.state()
        self.before: npt.NDArray[np.uint8] | None = None
        self.written_before = np.zeros(0, np.uint8)
        self.copied: frozenset[int] | None = None
        if watch.keeps_before and watch.notices_writes and not watch.keeps_written:
            self.copied = reachable(memory, launch.params, globals_at.values())
        if watch.keeps_written or watch.keeps_before:
            self.before = memory.copy_buffers(memory.arena, self._copied_now())
        if watch.keeps_written:
            self.written_before = memory.keep_written()[: memory.used].copy()
        self.ctas = math.prod(launch.grid)
        plan = self.plan
        self.cluster = cluster_of(plan.cluster, launch.cluster, launch.grid, plan.arch, explicit=plan.explicit_cluster)
        self.warps = -(-math.prod(launch.block) // LANES)
        self.param_bytes = self.plan.param_bytes
        _check(launch, self.param_bytes, self.plan.layout.param_bytes)
        self.stopped: list[int] = []
        """CTAs that ended the launch."""
        self.visits: list[int] = []
        """How often each block ran, after the launch."""

    def execute(self, threads: int, schedule: int, chosen: Sequence[int] | None) -> DeviceRun:
        self.schedule, self.chosen = schedule, chosen
        order, warp_order = self._orders(schedule, chosen)
        self.order = order
        total = self.ctas if order is None else len(order)
        together = math.prod(self.cluster)
        count = 1 if self.plan.ordered else max(1, min(threads, total // together))
        places = max(together, min(total, self._resident()) // together * together) if self.plan.waits else together
        launch = self.launch
        shape = Shape(
            launch.grid,
            launch.block,
            launch.shared_bytes,
            launch.sms,
            count,
            places,
            warp_order,
            _bulk(schedule),
            pool_registers(launch, self.plan.bounds_registers),
            self.cluster,
            self.watch.stops_at,
        )
        self.records = take_records(self.program, shape, self.watch, self.memory)
        placed = [self.globals_at[variable.name] for variable in self.plan.globals]
        self.records.start(self.memory, launch.params, placed, order, total, launch.max_steps)
        failures: list[BaseException] = []
        drives = [functools.partial(self._drive, ring, failures) for ring in self.records.rings]
        run_together(drives, self.program.code_bytes)
        if failures:
            raise failures[0]
        outcome = self._outcome(self.records.workers)
        keep_records(self.program, self.records)
        return outcome

    def _resident(self) -> int:
        return resident_ctas(self.plan, self.launch, self.chip or chip_of(self.plan.arch))

    def _again(self, watch: Instrumentation, ctas: Sequence[int] | None) -> npt.NDArray[np.uint8]:
        """Run CTAs again from the initial memory, in the same order, with another watcher; return its memory."""
        with self._from_before():
            other = _Run(self.program, self.launch, self.memory, self.globals_at, watch, self.chip)
            # If CTAs depend on each other's results, a single CTA would run differently.
            other.execute(1, self.schedule, self.chosen if self.plan.ordered or ctas is None else ctas)
        return other.records.workers[0].probe

    def _trace(self, watch: Instrumentation, program: Program | None) -> tuple[bytes, tuple[int, ...]]:
        """Run everything again from the initial memory with another watcher, and another program if one is given;
        return a digest of the final state, and how often each block ran.

        A loop that runs too long is stopped early: the trace differs already.
        """
        launch = replace(self.launch, max_steps=min(self.launch.max_steps, 4 * sum(self.visits) + SLICE))
        with self._from_before():
            chosen = program.suited_to(launch.block) if program is not None else self.program
            other = _Run(chosen, launch, self.memory, self.globals_at, watch, self.chip)
            outcome = other.execute(1, self.schedule, self.chosen)
            digest = hashlib.sha256()
            for buffer in self.memory.allocations:
                digest.update(self.memory.read(buffer.address, buffer.size_bytes).tobytes())
        digest.update(repr((outcome.findings, outcome.printed, outcome.conditions)).encode())
        return digest.digest(), tuple(other.visits)

    @contextmanager
    def _from_before(self) -> Iterator[None]:
        """Restore the initial memory inside the context, then the current one."""
        memory = self.memory
        assert self.before is not None
        now = memory.copy_buffers(memory.arena, self._copied_now())
        try:
            with repeated(memory, self.heap_before):
                memory.put_buffers(memory.arena, self.before, self._copied_now())
                yield
        finally:
            memory.put_buffers(memory.arena, now, self._copied_now())

    def _copied_now(self) -> frozenset[int] | None:
        """Return the numbers of the buffers that are copied: the blocks of the heap are always among them."""
        heap = heap_in(self.memory)
        if self.copied is None or heap is None:
            return self.copied
        return self.copied | {block.number for block in heap.live.values()}

    def _orders(
        self, schedule: int, chosen: Sequence[int] | None
    ) -> tuple[npt.NDArray[np.uint32] | None, tuple[int, ...]]:
        """Return the order of CTAs (None: all, by number) and of warps; chosen CTAs run in their order among all.

        The CTAs of a cluster follow each other, and run if one of them is chosen.
        """
        warps = list(range(self.warps))
        together = math.prod(self.cluster)
        if not schedule and chosen is None and together == 1:
            return None, tuple(warps)
        clusters = list(range(self.ctas // together))
        if schedule:
            shuffler = random.Random(schedule)
            shuffler.shuffle(clusters)
            shuffler.shuffle(warps)
        if chosen is not None:
            wanted = frozenset(chosen)
            if not wanted or not wanted <= frozenset(range(self.ctas)):
                raise LaunchError(f"the CTAs to run must be among the {self.ctas} CTAs of grid {self.launch.grid}")
            kept = {cluster_with(self.launch.grid, self.cluster, cta) for cta in wanted}
            clusters = [number for number in clusters if number in kept]
        ctas = clusters
        if together > 1:
            ctas = [cta for number in clusters for cta in members(self.launch.grid, self.cluster, number)]
        return np.array(ctas, np.uint32), tuple(warps)

    def _drive(self, ring: list[Worker], failures: list[BaseException]) -> None:
        """Run until the grid is done; a worker that needs the divergent code gets it and continues."""
        records = self.records
        try:
            while (status := records.entry(ring[0].record.ctypes.data)) == c.NEED_DIVERGENT:
                records.use_divergent(ring, *self.program.divergent())
            busy = next((worker for worker in ring if read_field(worker.record, c.WORKER_BUSY)), None)
            if status == c.STOPPED and busy is not None:
                self.stopped.append(read_field(busy.record, c.WORKER_CTA))  # or else another thread's CTA ended it
        except BaseException as error:
            failures.append(error)

    def _in_time(self) -> npt.NDArray[np.bool_] | None:
        """Return whether each CTA counts, by its number: of a stopped launch, those up to the first that stopped it.

        CTAs start in order and run to their end, those of a cluster together, so all before that one did; which of the
        others ran as well depends on the number of threads. None: all of them count.
        """
        if not self.stopped or self.plan.ordered:
            return None
        position = np.zeros(self.ctas, np.int64)
        ran = np.arange(self.ctas) if self.order is None else self.order
        position[ran] = np.arange(len(ran)) // math.prod(self.cluster)
        return np.asarray(position <= position[self.stopped].min())

    def _places(self) -> Places:
        regions = {region: None for worker in self.records.workers for region in worker.regions.seen}
        layout = self.plan.layout
        return Places(self.memory, layout, self.launch.shared_bytes, self.param_bytes, tuple(regions))

    def _outcome(self, workers: list[Worker]) -> DeviceRun:
        sizes = (*self.plan.chain_sizes, *self.plan.block_sizes)
        totals: list[int] = functools.reduce(operator.add, [worker.counts for worker in workers]).tolist()
        counts, ways = totals[: len(sizes)], totals[len(sizes) :]
        self.visits = counts
        instructions = sum(map(operator.mul, counts, sizes))
        calls = self.records.calls
        gathered = np.concatenate([each.reports[: each.report_count() * c.REPORT_BYTES] for each in workers])
        in_time = self._in_time()
        if in_time is not None:
            gathered = gathered[np.repeat(in_time[gathered.view(REPORT)["cta"]], c.REPORT_BYTES)]
            calls.keep_only(in_time, self.launch.grid)
        findings: tuple[Finding, ...] = ()
        if gathered.size:
            findings = findings_of(gathered, self.launch.grid, self.program.source, self._places(), self.watch.codes)
        if self.before is not None and (gathered.size or self.watch.reviews_always):
            scene = Scene(
                self.program.source,
                self.plan.layout,
                self.launch,
                self.memory,
                self.before,
                self.copied,
                self.written_before,
                self.heap_before,
                self.globals_at,
                gathered.view(REPORT),
                instructions,
                self._places(),
                tuple(self.records.boards),
                self._again,
                self._trace,
            )
            findings = self.watch.review(findings, scene)
        findings += tuple(calls.findings())
        if self.plan.in_flight:
            findings += in_flight_findings(self.plan.in_flight, self.program.source.instruction_at)
        counters = {"inst_executed": instructions}
        for worker in workers:
            for name, value in self.watch.counters(worker.probe).items():
                counters[name] = counters.get(name, 0) + value
        counters.update(self.watch.conclude(self.program.source, counts, self.records.boards))
        visits = Visits(
            self.plan.ptx_digest,
            self.plan.entry,
            runs_of_blocks(self.plan.chain_sizes, counts),
            frozenset(divmod(number, 2) for number, marked in enumerate(ways) if marked),
        )
        return DeviceRun(findings, calls.printed(), instructions, counters, visits, calls.conditions)


def _bulk(schedule: int) -> int:
    """Return when bulk copies are carried out: late by default; other schedules at issue, or in another order."""
    return c.BULK_LATE if not schedule else c.BULK_AT_ISSUE if schedule % 2 else c.BULK_SHUFFLED


@functools.lru_cache(maxsize=1024)
def _check_sizes(grid: Dim3, block: Dim3) -> None:
    threads = math.prod(block)
    if not 1 <= threads <= MAX_THREADS:
        raise ResourceError(f"block {block} has {threads} threads; a block has 1 to {MAX_THREADS}")
    if any(size < 1 for size in (*grid, *block)):
        raise LaunchError(f"grid {grid} and block {block} must be at least 1 in every dimension")
    for name, sizes, limits in (("grid", grid, LARGEST_GRID), ("block", block, LARGEST_BLOCK)):
        if any(size > limit for size, limit in zip(sizes, limits, strict=True)):
            raise LaunchError(f"{name} {sizes} is larger than {limits}, the limit of a GPU")


def _check(launch: LaunchSpec, needed: int, param_bytes: int) -> None:
    _check_sizes(launch.grid, launch.block)
    if not needed <= len(launch.params) <= param_bytes:
        raise LaunchError(f"the launch has {len(launch.params)} bytes of parameters; the kernel takes {needed}")
