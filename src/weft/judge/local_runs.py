"""Runs in this process: on any engine, or on the virtual GPU with every checker."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from weft.core.records import Dim3, Run
from weft.coverage.boundaries import Code
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

    def run(self, call: Call, watch: Watch) -> Ran:
        if watch.kept:
            self.engine.memory.rewind()  # as allocators do: arrays are at the addresses of the previous call's arrays
        else:
            self.engine.reset()
        self.engine.schedule = 0
        ran = super().run(call, watch)
        self._gathered.add(ran.run.visits)
        kernel, codes = self._ran.setdefault(str(sorted(call.defines.items())), (self._kernel, {}))
        for entry, binary in kernel.binaries(call.inputs).items():
            codes.setdefault(entry, Code(self.engine.program(binary, entry), binary, entry))
        notes = recognition_notes(self.engine, self._kernel, call.inputs) if ran.run.clean and not watch.kept else ()
        return replace(ran, run=replace(ran.run, findings=ran.run.findings + notes)) if notes else ran

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
        programs = {kernel: self.engine.program_of(*kernel).source.passes for kernel in self._gathered.blocks}
        return cover(self._gathered, programs, {os.path.abspath(path): path})

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
