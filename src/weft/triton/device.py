"""The virtual GPU that Triton's launches go to while it is active."""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import triton

from weft.core.chips import chip
from weft.core.errors import UsageError
from weft.core.finding_codes import Severity
from weft.core.records import Binary, Dim3, Finding, Place, Run, inlining_chain, worst_first
from weft.engines.launch import Launch
from weft.engines.protocol import RunOptions
from weft.engines.spell_findings import folded
from weft.engines.virtual import VirtualGPU
from weft.probes.tools import watch_for
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .errors import KernelFindings
from .fresh import Fresh
from .tensors import DeviceCopies, Known
from .tuned import Tuned

MOST_PROGRAMS = 64
"""Compiled kernels kept in memory: a test suite has thousands, most of which are launched once."""
SMALL = 20_000
"""Below this many warp instructions of a launch, a second host thread costs more than it gains."""
_LIBRARY = str(Path(triton.__file__).parent)
_HAS_GPU = torch.cuda.is_available()
_BEHIND_REAL_GPUS = 1000
_numbers: dict[str, int] = {}
"""Chip → its device number in this process."""


@dataclass(frozen=True)
class Call:
    """One launch as Triton requests it."""

    binary: Binary
    entry: str
    grid: Dim3
    cluster: int
    """CTAs of a cluster, in x."""
    threads: int
    shared_bytes: int
    scratch_bytes: Sequence[int]
    """Bytes for the entire grid, for each pointer that Triton adds."""
    pack: Callable[[Sequence[tuple[str, int, int]], DeviceCopies, Sequence[int]], bytes]


Engine = Callable[[Sequence[Launch], RunOptions], Run]
"""`run` of the virtual GPU, or of an engine that also counts."""


class Device:
    """A chip of the model and the virtual GPU that represents it."""

    def __init__(
        self, name: str, *, tools: Sequence[str] = (), mode: str = "hardware", threads: int | None = None
    ) -> None:
        self.chip = chip(name)
        self.arch = self.chip.architecture.target
        self.gpu = VirtualGPU(self.chip, mode=mode, threads=threads, most_programs=MOST_PROGRAMS)
        self.tools = tuple(tools)
        self.watch: Instrumentation = watch_for(self.tools)
        self.known = Known()
        self.fresh: Fresh | None = None
        """Tensors that were not written yet, where initcheck is on."""
        self.takes_host_tensors = True
        """False: as on a GPU, kernels take only tensors of cuda:0 and pinned ones."""
        self.engine: Engine = self.gpu.run
        self.launches = self.refused = 0
        """Launches that ran, and those that raised before they ran."""
        self.kernels: set[str] = set()
        """Names of the kernels that ran."""
        self._one_at_a_time = threading.RLock()
        self._threads = self.gpu.threads
        self._instructions: dict[tuple[str, Dim3], int] = {}
        """Warp instructions of the last launch of a kernel with a grid."""
        self.tuned: list[Tuned] = []
        """What autotuners chose, oldest first."""

    @property
    def capability(self) -> tuple[int, int]:
        major, minor = self.chip.architecture.capability.split(".")
        return int(major), int(minor)

    @property
    def number(self) -> int:
        """The device number by which Triton keys its caches: one per chip, different from those of real GPUs.

        Without a real GPU the first chip is 0, as `torch.cuda.current_device()` says: tests look into Triton's caches.
        """
        return _numbers.setdefault(self.chip.name, len(_numbers) + (_BEHIND_REAL_GPUS if _HAS_GPU else 0))

    def launch(self, call: Call) -> Run:
        """Copy in, run, copy out, print the kernel's output; raise KernelFindings for errors."""
        with self._one_at_a_time:
            try:
                run = self._run(call)
            except Exception:
                self.refused += 1
                raise
        if run.printed:
            sys.stdout.write(run.printed)
            sys.stdout.flush()
        self._judge(call, run)
        return run

    def _run(self, call: Call) -> Run:
        binary, memory = call.binary, self.gpu.memory
        program = self.gpu.program(binary, call.entry)
        watch = self.watch
        which = binary.ptx_digest, call.grid
        self.gpu.threads = 1 if self._instructions.get(which, SMALL) < SMALL else self._threads
        cluster = [call.cluster] if call.cluster > 1 else []
        shared = call.shared_bytes
        launch = Launch(binary, call.entry, call.grid, call.threads, (), shared_bytes=shared, cluster=cluster)
        with self.gpu.scratch((launch,)):
            if watch.keeps_written:
                memory.keep_written()
            copies = DeviceCopies(memory, self.known, takes_host=self.takes_host_tensors)
            scratch = [memory.allocate(size, "Triton's scratch memory") if size else 0 for size in call.scratch_bytes]
            params = call.pack(program.plan.params, copies, scratch)
            copies.translate()
            if self.fresh is not None and watch.keeps_written:
                self.fresh.tell(copies)
            fields = [params[at : at + size] for _, at, size in program.plan.params]
            run = self.engine((replace(launch, args=tuple(fields)),), RunOptions(watch=watch))
            copies.copy_out()
            if self.fresh is not None:
                self.fresh.ask(copies, known=watch.keeps_written)
        self.launches += 1
        self.kernels.add(call.entry)
        self._instructions[which] = run.instructions
        return run

    @contextmanager
    def running(self, engine: Engine, watch: Instrumentation = PLAIN) -> Iterator[None]:
        """Run launches through `engine` with `watch` inside, and as before afterwards."""
        before = self.engine, self.watch
        self.engine, self.watch = engine, watch
        try:
            yield
        finally:
            self.engine, self.watch = before

    def _judge(self, call: Call, run: Run) -> None:
        found: tuple[Finding, ...] = worst_first(folded(map(_in_users_file, run.findings)))
        errors = tuple(finding for finding in found if finding.level is Severity.ERROR)
        for finding in found:
            if finding.level is Severity.WARNING:
                warnings.warn(f"{call.entry}: {finding}", RuntimeWarning, stacklevel=2)
        if errors:
            raise KernelFindings(call.entry, errors)


def _in_users_file(finding: Finding) -> Finding:
    """Return the finding without lines of Triton's library, which are inlined into the user's line."""
    return replace(finding, place=_users(finding.place), other=_users(finding.other))


def _users(place: Place | None) -> Place | None:
    return next((at for at in inlining_chain(place) if not at.file.startswith(_LIBRARY)), place)


_active: list[Device] = []


def active() -> Device:
    """Return the device that launches run on."""
    if not _active:
        raise UsageError("no virtual GPU is active: call weft.triton.activate() first")
    return _active[-1]


def push(device: Device) -> None:
    _active.append(device)


def pop(device: Device) -> None:
    _active.remove(device)
