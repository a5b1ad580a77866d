"""Runs a kernel with each of many edits on one problem, and returns those with which it passes."""

import hashlib
import math
import resource
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from weft.core.errors import WeftError
from weft.core.records import Binary, Run
from weft.engines.arguments import Array
from weft.engines.bound_kernel import BoundKernel
from weft.engines.kernel_file import KernelFile
from weft.engines.launch import Launch
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.ptx.module import Function, Instruction, Module, Sym
from weft.ptx.parse import parse
from weft.tasks.task import Problem, Task
from weft.vm.runtime.watch import Instrumentation

from .corrected import Errors, errors_of, reference_of
from .edits import Edit, edits_of
from .switched import CHOICE, switched

MOST_STEPS = 1 << 20
"""Backward branches of a launch: an edit may make a loop infinite."""
_LONGER, _LEAST_STEPS = 1, 1 << 12
"""An edit may make a kernel take this many backward branches for each block that it enters, of which an iteration has
several; a short kernel may take this many in all."""


class _First(Instrumentation):
    """Stops a launch at its first report: with a finding an edit repairs nothing."""

    stops_at = 1


_FIRST = _First()


class NothingToRepair(WeftError):
    """The kernel passes without an edit, as with a race that a plain run does not show."""


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the compilers that it started, which other load does not change."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@dataclass(frozen=True)
class Trial:
    """What a kernel with an edit does on one problem."""

    number: int
    """The edit's; 0 is the kernel as it is."""
    passed: bool
    """Whether the gates of the task pass, and nothing is found."""
    corrected: float
    """The share of the wrong elements that are right with it."""


@dataclass(frozen=True)
class Judge:
    """Judges the results of a run on one problem."""

    candidate: Candidate
    task: Task
    problem: Problem
    kernel: KernelFile

    @cached_property
    def reference(self) -> Mapping[str, Array]:
        return reference_of(self.task, self.problem)

    def passes(self, arrays: Mapping[str, Array]) -> bool:
        """Return whether the results in these arrays pass the gates of the task."""
        declared = self.candidate.declared_at(self.kernel, self.problem)
        return bool(self.task.judge(self.problem, self._outputs(arrays), declared).passed)

    def errors(self, arrays: Mapping[str, Array]) -> Errors:
        """Return how far the results are from the reference."""
        return errors_of(self._outputs(arrays), self.reference)

    def _outputs(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return {output.name: arrays[output.name] for output in self.task.outputs if output.name in arrays}


@dataclass(frozen=True)
class Bench:
    """The -G build of a candidate, ready to run one problem."""

    candidate: Candidate
    task: Task
    problem: Problem
    kernel: KernelFile
    bound: BoundKernel
    plain: Mapping[str, Binary]
    """Entry → its optimised build, for the launches that no edit of a batch changes."""
    until: float = math.inf
    """The CPU time (`cpu_seconds`) at which no further edit is tested."""

    @classmethod
    def of(cls, candidate: Candidate, task: Task, problem: Problem, until: float = math.inf) -> "Bench":
        optimised = candidate.load(problem)
        kernel = replace(optimised, debug=True)
        arrays = {name: array.copy() for name, array in problem.arrays.items()}
        bound = kernel.bind(arrays)
        plain = optimised.binaries(problem.arrays) if len(bound.launches) > 1 else {}
        return cls(candidate, task, problem, kernel, bound, plain, until)

    @property
    def binary(self) -> Binary:
        return self.bound.launches[0].binary

    @cached_property
    def module(self) -> Module:
        """The -G build."""
        return parse(self.binary.ptx)

    @cached_property
    def launches_of(self) -> Mapping[str, tuple[int, ...]]:
        """Function → the launches that may call it."""
        found: dict[str, list[int]] = {}
        for number, launch in enumerate(self.bound.launches):
            for name in _called(self.module, self.binary.entries.get(launch.entry, launch.entry)):
                found.setdefault(name, []).append(number)
        return {name: tuple(numbers) for name, numbers in found.items()}

    @cached_property
    def is_mixed(self) -> bool:
        """Whether launches may be of different builds: not if they have variables of the module in common."""
        shared = [each for each in self.module.variables if each.space == "global" and not each.init]
        return bool(self.plain) and not shared and not self.bound.constants

    def edits(self) -> list[Edit]:
        """Return all edits of lines in the user's file."""
        text, module = self.binary.ptx, self.module
        functions = [function for name, function in module.functions.items() if name in self.launches_of]
        name = self.candidate.path.name
        files = {file for file in module.files.values() if file.rpartition("/")[2] == name}
        shape = self.problem.workload.shape
        sizes = {axis.upper(): getattr(shape, axis) for axis in ("hq", "hkv", "sq", "skv", "d")}
        return edits_of(text, functions, sorted(files), sizes)

    @cached_property
    def judge(self) -> Judge:
        return Judge(self.candidate, self.task, self.problem, self.kernel)

    def tried(self, edits: Sequence[Edit], among: Collection[Edit] | None = None) -> Iterator[tuple[Edit, Trial]]:
        """Yield the edits that change a result, in order, with what they do. Raises NothingToRepair if the problem
        passes without one.

        With `among` only these are tested, also if the problem passes without an edit.
        """
        text = switched(self.binary.ptx, edits)
        binary = replace(self.binary, ptx=text, ptx_digest=hashlib.sha256(text.encode()).hexdigest())
        gpu = VirtualGPU(self.kernel.gpu, threads=1)
        before, bound = self._cut(binary, {at for edit in edits for at in self.launches_of.get(edit.function, ())})
        tested = [number for number, edit in enumerate(edits, 1) if among is None or edit in among]

        def chosen(number: int) -> BoundKernel:
            gpu.reset()
            gpu.set_symbol(binary, bound.launches[0].entry, CHOICE, np.array([number], np.uint32))
            return bound

        numbers = tested if among is not None else [0, *tested]
        for trial in trials(before, chosen, numbers, gpu, self.judge, self.until):
            yield edits[trial.number - 1], trial

    def _cut(self, binary: Binary, changed: Collection[int]) -> tuple[BoundKernel, BoundKernel]:
        """Return the launches before the first that edits change, and it with all behind it; only launches that edits
        change have the edited build.
        """
        launches = self.bound.launches
        if not self.is_mixed:
            changed = range(len(launches))
        first = min(changed, default=0)
        made = [
            launch_with(launch, binary if number in changed else self.plain[launch.entry])
            for number, launch in enumerate(launches)
        ]
        before = replace(self.bound, launches=tuple(made[:first]), complete=False)
        return before, replace(self.bound, launches=tuple(made[first:]), complete=self.bound.complete and not first)


def trials(
    before: BoundKernel,
    chosen: Callable[[int], BoundKernel],
    numbers: Sequence[int],
    gpu: VirtualGPU,
    judge: Judge,
    until: float,
) -> Iterator[Trial]:
    """Yield what a call does with each edit that changes its results. Raises NothingToRepair if it passes with 0, the
    kernel as it is.

    `before` are launches that no edit changes, which run once; `chosen` returns the others with one edit.
    """
    given = {name: array.copy() for name, array in before.arrays.items()}
    try:
        if before.launches:
            run = _run(before, gpu, MOST_STEPS)
            if run is None or not run.clean:  # no edit behind it helps
                return
        start = {name: array.copy() for name, array in before.arrays.items()}
        unedited: list[bytes] | None = None
        errors: Errors | None = None
        most = MOST_STEPS
        for number in numbers:
            if cpu_seconds() > until:
                return
            _restore(before, start)
            bound = chosen(number)
            run = _run(bound, gpu, most)
            if number == 0 and run is not None:
                entered = sum(sum(visits.blocks) for visits in run.visits)
                most = min(most, _LONGER * entered + _LEAST_STEPS) if entered else most
            results = [array.tobytes() for array in bound.arrays.values()]
            # An edit without an effect on the arrays repairs nothing, whatever the judge would say about findings.
            if number == 0 and run is not None:
                errors = judge.errors(bound.arrays)
            if run is None or not run.clean or results == unedited:
                continue
            passed = judge.passes(bound.arrays)
            if number == 0:
                if passed:
                    raise NothingToRepair("the kernel passes as it is")
                unedited = results
                continue
            part = judge.errors(bound.arrays).corrected(errors) if errors is not None and not passed else 0.0
            yield Trial(number, passed, 1.0 if passed else part)
    finally:
        _restore(before, given)


def _called(module: Module, entry: str) -> Iterator[str]:
    """Yield a function and those that it calls, directly or not, each once."""
    todo, seen = [entry], {entry}
    while todo:
        function = module.functions.get(todo.pop())
        if function is None or not function.body:
            continue
        yield function.name
        fresh = dict.fromkeys(name for name in _names_in(function) if name in module.functions and name not in seen)
        seen |= set(fresh)
        todo += fresh


def _names_in(function: Function) -> Iterator[str]:
    """Yield the symbols that its instructions name: a called function, or one whose address is taken."""
    for item in function.body:
        if isinstance(item, Instruction):
            yield from (operand.name for operand in item.operands if isinstance(operand, Sym))


def _restore(bound: BoundKernel, contents: Mapping[str, Array]) -> None:
    for name, array in bound.arrays.items():
        if array.flags.writeable:
            array[...] = contents[name]


def _run(bound: BoundKernel, gpu: VirtualGPU, most: int) -> Run | None:
    """Return the run, or None if the launch fails."""
    try:
        return bound.run(gpu, max_steps=most, watch=_FIRST).run
    except WeftError:
        return None


def launch_with(launch: Launch, binary: Binary, args: Sequence[Any] | None = None) -> Launch:
    """Return a launch of the same kernel in another build, with these arguments or its own."""
    return Launch(
        binary,
        launch.entry,
        launch.grid,
        launch.block,
        launch.args if args is None else args,
        shared_bytes=launch.shared_bytes,
        cluster=launch.cluster,
        names=launch.names if args is None else (),
        arrays=launch.arrays,
        opt_in_shared=launch.opt_in_shared,
        place=launch.place,
    )
