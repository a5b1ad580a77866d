"""Runs in this process: on any engine, or on the virtual GPU with every checker."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from weft.core.records import Binary, Dim3, Run
from weft.coverage.boundaries import Code
from weft.coverage.code_map import stored_map
from weft.coverage.gather import Gathered, cover
from weft.coverage.records import Boundary, Coverage
from weft.engines.check_indices import Shapes, check_indices
from weft.engines.kernel_file import KernelFile
from weft.engines.protocol import Engine
from weft.engines.virtual import VirtualGPU
from weft.probes.initcheck import DebugInitCheck
from weft.probes.tools import watch_for
from weft.tasks.task import Declared
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .candidate import Candidate
from .look import Look, boundaries_of
from .recognise import recognition_notes
from .runs import OTHER_SCHEDULES, Call, Ran, Watch


class EngineRuns:
    """Runs a candidate on any engine. What the engine cannot watch is not judged."""

    repeated_by = "a second run"
    one_order = False

    def __init__(self, candidate: Candidate, engine: Engine) -> None:
        self.candidate, self.engine = candidate, engine
        self._call: Call
        self._watch: Watch
        self._kernel: KernelFile

    @property
    def declared(self) -> Declared:
        return self.candidate.declared

    @property
    def max_steps(self) -> int:
        return self.candidate.max_steps

    def run(self, call: Call, watch: Watch) -> Ran:
        self._call, self._watch = call, watch
        self._kernel = self.candidate.load_with(call.defines)
        return self._run(watch_for(watch.tools) if self.engine.capabilities.can_watch else PLAIN)

    def again(self) -> Iterator[Ran]:
        yield self._run(PLAIN)

    def run_debug(self, call: Call) -> Run | None:
        return None

    def look(self, look: Look) -> tuple[Boundary, ...]:
        return ()

    def coverage(self) -> Coverage:
        return Coverage()

    def check_indices(self, defines: Mapping[str, str], calls: Sequence[Sequence[Shapes]]) -> Run:
        return check_indices(self.candidate.load_with(defines), calls)

    def grids(self, call: Call) -> tuple[Dim3, ...]:
        return self.candidate.load_with(call.defines).grids(call.inputs)

    def _run(self, watch: Instrumentation) -> Ran:
        """Run the call once. Outputs start as 0xFF, which is NaN; inputs are copies."""
        call, limits = self._call, self._watch
        inputs = {name: array.copy() for name, array in call.inputs.items()}
        run, arrays = self._kernel.run(self.engine, inputs, watch=watch, ctas=limits.ctas, max_steps=limits.max_steps)
        outputs = {name: arrays[name] for name in call.outputs if name in arrays}
        return Ran(run, outputs, self._kernel.numbers(call.inputs))


class RanKernel(NamedTuple):
    """A kernel that ran. Sizes decide what is launched and compiled together: one kernel may have several binaries."""

    defines: Mapping[str, str]
    entry: str
    binary: Binary


@dataclass(frozen=True)
class Seen:
    """What runs executed, for the coverage of runs in several processes."""

    gathered: Gathered
    ran: tuple[RanKernel, ...]


class LocalRuns(EngineRuns):
    """Runs a candidate on the virtual GPU. A call starts from a fresh device; its repetitions, and calls with `kept`,
    start from what the previous calls left."""

    repeated_by = "another order of CTAs and warps"
    one_order = True
    engine: VirtualGPU

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate, VirtualGPU(candidate.gpu))
        self._gathered = Gathered()
        self._ran: dict[str, tuple[KernelFile, dict[str, Code]]] = {}
        """Macros → the file with them, and its kernels that ran, by their names."""
        self._ran_since: dict[tuple[str, str], RanKernel] = {}
        """Digest of the PTX and kernel → what ran since the last `take_seen`."""

    def run(self, call: Call, watch: Watch) -> Ran:
        if watch.kept:
            self.engine.memory.rewind()  # as allocators do: arrays are at the addresses of the previous call's arrays
        else:
            self.engine.reset()
        self.engine.schedule = 0
        ran = super().run(call, watch)
        self._gathered.add(ran.run.visits)
        for entry, binary in self._kernel.binaries(call.inputs).items():
            self._note(RanKernel(call.defines, entry, binary), self._kernel)
        notes = recognition_notes(self.engine, self._kernel, call.inputs) if ran.run.clean and not watch.kept else ()
        return replace(ran, run=replace(ran.run, findings=ran.run.findings + notes)) if notes else ran

    def _note(self, ran: RanKernel, kernel: KernelFile) -> None:
        """Keep a kernel that ran."""
        code = Code(self.engine.program(ran.binary, ran.entry), ran.binary, ran.entry)
        self._ran.setdefault(str(sorted(ran.defines.items())), (kernel, {}))[1].setdefault(ran.entry, code)
        self._ran_since[ran.binary.ptx_digest, ran.entry] = ran

    def take_seen(self) -> Seen:
        """Return what ran since the last call of this, for `add_seen` in another process."""
        seen = Seen(self._gathered, tuple(self._ran_since.values()))
        self._gathered, self._ran_since = Gathered(), {}
        return seen

    def add_seen(self, seen: Seen) -> None:
        """Count what the same candidate executed in another process."""
        self._gathered.merge(seen.gathered)
        for ran in seen.ran:
            self._note(ran, self.candidate.load_with(ran.defines))

    def again(self) -> Iterator[Ran]:
        return map(self.run_again, OTHER_SCHEDULES)

    def run_again(self, schedule: int) -> Ran:
        """Repeat the last call in another order. Device variables keep what the previous runs left in them."""
        self.engine.schedule = schedule
        return self._run(PLAIN)

    def look(self, look: Look) -> tuple[Boundary, ...]:
        found: dict[Boundary, None] = {}
        coverage = self.coverage()
        for kernel, codes in self._ran.values():
            found |= dict.fromkeys(boundaries_of(kernel, tuple(codes.values()), look, coverage))
        return tuple(found)

    def coverage(self) -> Coverage:
        path = self.candidate.kernel.path
        maps = {kernel: stored_map(self.engine.program_of(*kernel).source) for kernel in self._gathered.blocks}
        return cover(self._gathered, maps, {os.path.abspath(path): path})

    def run_debug(self, call: Call) -> Run:
        return check_debug_build(self.candidate.load_with(call.defines), call.inputs)


def check_debug_build(
    kernel: KernelFile, arrays: Mapping[str, Any] = {}, *, sizes: Mapping[str, int] = {}, seed: int = 0
) -> Run:
    """Run the file's -G build, where every variable is in memory, under initcheck. Given arrays are copied.

    The optimiser may delete a read of an uninitialised variable (its value is undefined), and then no checker sees it
    in the optimised PTX. A device-debug build (-G) keeps every read: arrays are in local memory, scalars in registers.
    It is many times slower: give a small shape.
    """
    copies = {name: array.copy() if hasattr(array, "copy") else array for name, array in arrays.items()}
    gpu = VirtualGPU(kernel.gpu)
    return replace(kernel, debug=True).run(gpu, copies, sizes=sizes, seed=seed, watch=DebugInitCheck()).run
