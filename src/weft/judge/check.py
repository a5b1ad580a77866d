"""Run one kernel on one workload and decide, stopping at the first thing that is wrong."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.shapes import Shape
from weft.core.chips import DEFAULT_GPU, target_of
from weft.core.errors import CompileError, LaunchError, ParseError, ResourceError, Unsupported
from weft.core.records import Run, worst_first
from weft.engines.debug_build import check_debug_build
from weft.engines.kernel_file import MAX_STEPS, KernelFile, load
from weft.engines.sample import CannotSample
from weft.engines.virtual import VirtualGPU
from weft.kernels.ladder import RUNGS
from weft.probes.tools import watch_for
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Declared, Judgement, Outputs, Problem, Task, Workload
from weft.vm.launch import PLAIN
from weft.vm.runtime.watch import Instrumentation

from .part import Part, choose_part
from .verdict import Sample, Status, Verdict

SAMPLES = 5
LEAST_STEPS, STEPS_PER_PRODUCT = 1 << 22, 16
"""Loop iterations that a kernel may need: one thread alone would multiply Q by K and P by V with fewer."""
OTHER_SCHEDULES = (1, 2)
"""Other orders of CTAs and warps: a right kernel gives the same bits."""


@dataclass(frozen=True)
class Candidate:
    """A kernel to be judged: its file, and the rung of the ladder it is (if it is one)."""

    path: Path
    rung: str | None = None
    gpu: str = DEFAULT_GPU
    """A GPU's name, or an architecture for its smallest GPU."""
    max_steps: int = MAX_STEPS
    """Loop iterations that a host thread may run in a launch; left as it is, fewer where the workload is small."""
    defines: Mapping[str, str] = field(default_factory=dict)
    """Macros of the command line. Those that select a workload's type and mask win."""
    launch: Path | None = None
    """The file of a PTX file's launch lines, if not the one beside it."""
    include_dirs: tuple[str, ...] = ()
    compiler: str = "nvrtc"

    @property
    def arch(self) -> str:
        """The architecture it is compiled for."""
        return target_of(self.gpu)

    def load(self, problem: Problem) -> KernelFile:
        """The file with the macros that select the problem's type and mask, as far as it has them."""
        selected = {name: value for name, value in problem.defines().items() if name in self.declared.macros}
        return load(
            self.path,
            gpu=self.gpu,
            defines={**self.defines, **selected},
            launch=self.launch,
            include_dirs=self.include_dirs,
            compiler=self.compiler,
        )

    @cached_property
    def declared(self) -> Declared:
        """What the file says about its arithmetic."""
        lines = load(self.path, gpu=self.gpu, launch=self.launch).lines.defines
        macros = {line.name: line.value if isinstance(line.value, str) else line.value.text for line in lines}
        return Declared(self.rung, {**macros, **self.defines})

    def declared_at(self, kernel: KernelFile, problem: Problem) -> Declared:
        """The same with the numbers of one call: how many parts a split kernel makes may hang on its sizes."""
        return replace(self.declared, macros={**self.declared.macros, **kernel.numbers(problem.arrays)})


def check(
    candidate: Candidate,
    task: Task,
    workload: Workload,
    *,
    sampled: bool = False,
    tools: Sequence[str] = ("all",),
) -> Verdict:
    """Judge one workload: compile, launch, memory and races, correct, deterministic.

    `sampled`: of a rung's grid only some CTAs run (at least eight), and their rows are judged; what fails so, or
    cannot be sampled, is judged whole. `tools` are the checkers that watch the first run.
    """
    start = time.perf_counter()
    watch = watch_for(tools)
    verdict = _decide(candidate, task, workload, watch, sampled=sampled)
    if verdict.ctas_left_out and not verdict.passed:
        verdict = _decide(candidate, task, workload, watch, sampled=False)
    return replace(verdict, seconds=time.perf_counter() - start)


def check_debug(candidate: Candidate, task: Task, workload: Workload) -> Verdict | None:
    """Judge initialisation once more in the kernel's -G build, where the optimiser has deleted no read.

    None: nothing was found. It is many times slower, so give the smallest workload; one that passed `check`.
    """
    start = time.perf_counter()
    problem = task.draw(workload)
    try:
        run = check_debug_build(candidate.load(problem), problem.arrays)
    except (CompileError, LaunchError, ParseError, Unsupported) as error:
        verdict = Verdict(workload, Status.UNSUPPORTED, f"its debug build (-G) cannot be judged: {error}")
    else:
        if run.clean:
            return None
        verdict = unsafe_verdict(workload, run)
    return replace(verdict, debug_build=True, seconds=time.perf_counter() - start)


def _decide(candidate: Candidate, task: Task, workload: Workload, watch: Instrumentation, *, sampled: bool) -> Verdict:
    problem, most = task.draw(workload), _most_steps(candidate, workload.shape)
    try:
        kernel = candidate.load(problem)
        part = _part(candidate, kernel, problem) if sampled else None
        gpu = VirtualGPU(kernel.gpu)
        try:
            run, outputs = _run(kernel, gpu, task, problem, most, watch=watch, part=part)
        except CannotSample:
            part = None
            run, outputs = _run(kernel, gpu, task, problem, most, watch=watch)
    except CompileError as error:
        return Verdict(workload, Status.COMPILE_ERROR, str(error))
    except (Unsupported, ParseError) as error:
        return Verdict(workload, Status.UNSUPPORTED, str(error))
    except LaunchError as error:
        refused = Status.RESOURCE_ERROR if isinstance(error, ResourceError) else Status.LAUNCH_ERROR
        return Verdict(workload, refused, str(error))
    left_out = run.counters.get("ctas_left_out", 0)
    if not run.clean:
        return replace(unsafe_verdict(workload, run), ctas_left_out=left_out)
    wrong = wrong_form(outputs, task, problem)
    if wrong is not None:
        return wrong
    declared = candidate.declared_at(kernel, problem)
    if part is not None:
        assert isinstance(problem, AttentionProblem)
        outputs = part.outputs(outputs)
        judged = task.judge(problem.part(part.rows, part.heads), outputs, declared)
    else:
        judged = task.judge(problem, outputs, declared)
    verdict = replace(
        judged_verdict(task, workload, judged, outputs),
        findings=run.findings,
        suppressed=run.suppressed,
        ctas_left_out=left_out,
    )
    if not verdict.passed:
        return verdict
    for schedule in OTHER_SCHEDULES:
        gpu.schedule = schedule  # on the same device, whose variables keep what the first run left there
        shuffled, again = _run(kernel, gpu, task, problem, most, part=part)
        if not shuffled.clean:
            return replace(unsafe_verdict(workload, shuffled), ctas_left_out=left_out)
        again = part.outputs(again) if part is not None else again
        if any(outputs[name].tobytes() != again[name].tobytes() for name in outputs):
            message = "another order of CTAs and warps gives other bits"
            return replace(verdict, status=Status.NONDETERMINISTIC, message=message)
    return verdict


def _most_steps(candidate: Candidate, shape: Shape) -> int:
    """An endless loop of a small workload ends after seconds, not minutes."""
    if candidate.max_steps != MAX_STEPS:
        return candidate.max_steps
    products = shape.b * shape.hq * shape.sq * shape.skv * shape.d
    return min(MAX_STEPS, LEAST_STEPS + STEPS_PER_PRODUCT * products)


def _part(candidate: Candidate, kernel: KernelFile, problem: Problem) -> Part | None:
    """The part of a rung's grid to be judged; nothing says which rows the CTAs of other kernels have."""
    rung = RUNGS.get(candidate.rung or "")
    if rung is None or rung.rows is None or not isinstance(problem, AttentionProblem):
        return None
    rows_per_cta = int(candidate.declared.macros[rung.rows])
    return choose_part(rows_per_cta, kernel.grids(problem.arrays)[0], problem)


def judged_verdict(task: Task, workload: Workload, judged: Judgement, outputs: Outputs) -> Verdict:
    """What the gates say, with the first wrong elements."""
    missing = tuple(output.name for output in task.outputs if output.name not in outputs)
    verdict = Verdict(workload, Status.PASSED, "", judged.gates, judged.error, parts=judged.parts, not_judged=missing)
    if judged.passed:
        return verdict
    failed = next(gate for gate in judged.gates if not gate.passed)
    samples = _samples(outputs[task.outputs[0].name], judged.expected)
    return replace(verdict, status=Status.INCORRECT_NUMERICAL, message=str(failed), samples=samples)


def unsafe_verdict(workload: Workload, run: Run) -> Verdict:
    """Of a run with findings."""
    late = any(finding.code == "S302" for finding in run.findings)
    status = Status.TIMEOUT if late else Status.UNSAFE
    findings = worst_first(run.findings)
    return Verdict(workload, status, str(findings[0]), findings=findings, suppressed=run.suppressed)


def _run(
    kernel: KernelFile,
    gpu: VirtualGPU,
    task: Task,
    problem: Problem,
    max_steps: int,
    *,
    watch: Instrumentation = PLAIN,
    part: Part | None = None,
) -> tuple[Run, Outputs]:
    """Outputs start as 0xFF, which is NaN; inputs are copies."""
    inputs = {name: array.copy() for name, array in problem.arrays.items()}
    run, arrays = kernel.run(gpu, inputs, watch=watch, ctas=part.sample if part else None, max_steps=max_steps)
    return run, outputs_of(kernel, task, arrays)


def outputs_of(kernel: KernelFile, task: Task, arrays: Mapping[str, Array]) -> Outputs:
    """The arrays of a run that the task judges."""
    for output in task.outputs:
        if output.name not in arrays and not output.optional:
            raise LaunchError(f"{kernel.path} declares no output `{output.name}`, which {task.name} asks for")
    return {output.name: arrays[output.name] for output in task.outputs if output.name in arrays}


def wrong_form(outputs: Outputs, task: Task, problem: Problem) -> Verdict | None:
    """The verdict on an output of another shape or type than the task's, if there is one."""
    workload = problem.workload
    for name, array in outputs.items():
        output = task.output(name)
        shape, dtype = output.shape(workload.shape), output.numpy_dtype(workload)
        if array.shape != shape:
            return Verdict(workload, Status.INCORRECT_SHAPE, f"{name} is {array.shape}, not {shape}")
        if array.dtype != dtype:
            return Verdict(workload, Status.INCORRECT_DTYPE, f"{name} is {array.dtype}, not {dtype}")
    return None


def _samples(out: Array, expected: Array) -> tuple[Sample, ...]:
    """The worst elements first, NaN above all."""
    error = np.abs(out.astype(np.float64) - expected)
    order = np.argsort(np.where(np.isnan(error), np.inf, error), axis=None)[::-1][:SAMPLES]
    places = [tuple(int(i) for i in np.unravel_index(at, out.shape)) for at in order]
    return tuple(Sample(place, float(out[place]), float(expected[place])) for place in places)
