"""Runs a kernel with each of many edits on one problem, and returns those with which it passes."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import WeftError
from weft.core.records import Binary
from weft.engines.bound_kernel import BoundKernel
from weft.engines.kernel_file import KernelFile
from weft.engines.launch import Launch
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.ptx.parse import parse
from weft.tasks.task import Problem, Task

from .edits import Edit, edits_of
from .switched import CHOICE, switched

MOST_STEPS = 1 << 15
"""Backward branches of a launch: an edit may make a loop infinite."""


@dataclass(frozen=True)
class Bench:
    """The -G build of a candidate, ready to run one problem."""

    candidate: Candidate
    task: Task
    problem: Problem
    kernel: KernelFile
    bound: BoundKernel

    @classmethod
    def of(cls, candidate: Candidate, task: Task, problem: Problem) -> "Bench":
        kernel = replace(candidate.load(problem), debug=True)
        arrays = {name: array.copy() for name, array in problem.arrays.items()}
        return cls(candidate, task, problem, kernel, kernel.bind(arrays))

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
        return edits_of(text, functions, sorted(files))

    def passing(self, edits: Sequence[Edit]) -> Iterator[Edit]:
        """Yield the edits with which the problem passes, in order. None do if it passes without an edit."""
        text = switched(self.binary.ptx, edits)
        binary = replace(self.binary, ptx=text, ptx_digest=hashlib.sha256(text.encode()).hexdigest())
        bound = replace(self.bound, launches=tuple(_with_binary(launch, binary) for launch in self.bound.launches))
        gpu = VirtualGPU(self.kernel.gpu, threads=1)
        start = {name: array.copy() for name, array in bound.arrays.items()}
        for number in range(len(edits) + 1):
            for name, array in bound.arrays.items():
                if array.flags.writeable:
                    array[...] = start[name]
            gpu.reset()
            gpu.set_symbol(binary, bound.launches[0].entry, CHOICE, np.array([number], np.uint32))
            if self._passes(bound, gpu):
                if number == 0:
                    return
                yield edits[number - 1]

    def _passes(self, bound: BoundKernel, gpu: VirtualGPU) -> bool:
        try:
            run = bound.run(gpu, max_steps=MOST_STEPS).run
        except WeftError:
            return False
        names = [output.name for output in self.task.outputs if output.name in bound.arrays]
        outputs = {name: bound.arrays[name] for name in names}
        declared = self.candidate.declared_at(self.kernel, self.problem)
        return run.clean and bool(self.task.judge(self.problem, outputs, declared).passed)


def _with_binary(launch: Launch, binary: Binary) -> Launch:
    return Launch(
        binary,
        launch.entry,
        launch.grid,
        launch.block,
        launch.args,
        shared_bytes=launch.shared_bytes,
        names=launch.names,
        arrays=launch.arrays,
        opt_in_shared=launch.opt_in_shared,
        place=launch.place,
    )
