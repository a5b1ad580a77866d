"""Runs a kernel with each of many edits on one problem, and returns those with which it passes."""

import hashlib
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import WeftError
from weft.core.records import Binary, Run
from weft.engines.bound_kernel import BoundKernel
from weft.engines.kernel_file import KernelFile
from weft.engines.launch import Launch
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.ptx.parse import parse
from weft.tasks.task import Problem, Task

from .edits import Edit, edits_of
from .switched import CHOICE, switched

MOST_STEPS = 1 << 20
"""Backward branches of a launch: an edit may make a loop infinite."""
_LONGER, _LEAST_STEPS = 3, 1 << 12
"""An edit may make a kernel this many times longer than it is, and a short one this long."""


@dataclass(frozen=True)
class Bench:
    """The -G build of a candidate, ready to run one problem."""

    candidate: Candidate
    task: Task
    problem: Problem
    kernel: KernelFile
    bound: BoundKernel
    until: float = math.inf
    """The time of the process at which no further edit is tested."""

    @classmethod
    def of(cls, candidate: Candidate, task: Task, problem: Problem, until: float = math.inf) -> "Bench":
        kernel = replace(candidate.load(problem), debug=True)
        arrays = {name: array.copy() for name, array in problem.arrays.items()}
        return cls(candidate, task, problem, kernel, kernel.bind(arrays), until)

    @property
    def binary(self) -> Binary:
        return self.bound.launches[0].binary

    def edits(self) -> list[Edit]:
        """Return all edits of lines in the user's file."""
        text = self.binary.ptx
        module = parse(text)
        functions = [function for function in module.functions.values() if function.body]
        name = self.candidate.path.name
        files = {file for file in module.files.values() if file.rpartition("/")[2] == name}
        shape = self.problem.workload.shape
        sizes = {axis.upper(): getattr(shape, axis) for axis in ("hq", "hkv", "sq", "skv", "d")}
        return edits_of(text, functions, sorted(files), sizes)

    def passing(self, edits: Sequence[Edit], among: Collection[Edit] | None = None) -> Iterator[Edit]:
        """Yield the edits with which the problem passes, in order. None do if it passes without an edit.

        With `among` only these are tested, also if the problem passes without an edit.
        """
        text = switched(self.binary.ptx, edits)
        binary = replace(self.binary, ptx=text, ptx_digest=hashlib.sha256(text.encode()).hexdigest())
        bound = replace(self.bound, launches=tuple(_with_binary(launch, binary) for launch in self.bound.launches))
        gpu = VirtualGPU(self.kernel.gpu, threads=1)
        start = {name: array.copy() for name, array in bound.arrays.items()}
        unedited: list[bytes] | None = None
        most = MOST_STEPS
        numbers = [number for number, edit in enumerate(edits, 1) if among is None or edit in among]
        for number in ([0] if among is None else []) + numbers:
            if time.process_time() > self.until:
                return
            for name, array in bound.arrays.items():
                if array.flags.writeable:
                    array[...] = start[name]
            gpu.reset()
            gpu.set_symbol(binary, bound.launches[0].entry, CHOICE, np.array([number], np.uint32))
            run = _run(bound, gpu, most)
            if number == 0 and run is not None:
                entered = sum(sum(visits.blocks) for visits in run.visits)
                most = min(most, _LONGER * entered + _LEAST_STEPS) if entered else most
            results = [array.tobytes() for array in bound.arrays.values()]
            # An edit without an effect on the arrays repairs nothing, whatever the judge would say about findings.
            if run is None or not run.clean or results == unedited:
                continue
            passes = self._passes(bound)
            if number == 0:
                if passes:
                    return
                unedited = results
            elif passes:
                yield edits[number - 1]

    def _passes(self, bound: BoundKernel) -> bool:
        names = [output.name for output in self.task.outputs if output.name in bound.arrays]
        outputs = {name: bound.arrays[name] for name in names}
        declared = self.candidate.declared_at(self.kernel, self.problem)
        return bool(self.task.judge(self.problem, outputs, declared).passed)


def _run(bound: BoundKernel, gpu: VirtualGPU, most: int) -> Run | None:
    """Return the run, or None if the launch fails."""
    try:
        return bound.run(gpu, max_steps=most).run
    except WeftError:
        return None


def _with_binary(launch: Launch, binary: Binary) -> Launch:
    return Launch(
        binary,
        launch.entry,
        launch.grid,
        launch.block,
        launch.args,
        shared_bytes=launch.shared_bytes,
        cluster=launch.cluster,
        names=launch.names,
        arrays=launch.arrays,
        opt_in_shared=launch.opt_in_shared,
        place=launch.place,
    )
