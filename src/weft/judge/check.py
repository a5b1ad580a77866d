"""Run one kernel on one workload and decide, stopping at the first thing that is wrong."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from weft.attention.dtypes import Array, numpy_dtype
from weft.attention.emulate import Algorithm
from weft.core.errors import CompileError, LaunchError, ParseError, Unsupported
from weft.core.records import Run
from weft.engines.kernel_file import KernelFile, load
from weft.engines.virtual import VirtualGPU
from weft.probes import InitCheck, Probes, RaceCheck

from .declared import algorithms_of
from .problem import Judgement, Problem, judge, pose
from .verdict import Sample, Status, Verdict, Workload

SAMPLES = 5
OTHER_SCHEDULE = 1
"""A second order of CTAs and warps: a right kernel gives the same bits."""


@dataclass(frozen=True)
class Candidate:
    """A kernel to be judged: its file, and the rung of the ladder it is (if it is one)."""

    path: Path
    rung: str | None = None
    arch: str = "sm_89"

    def load(self, problem: Problem) -> KernelFile:
        """The file with the macros that select the problem's type and mask, as far as it has them."""
        selected = {name: value for name, value in problem.defines().items() if name in self.macros}
        return load(self.path, arch=self.arch, defines=selected)

    def algorithms(self, task: str, dtype: str) -> tuple[Algorithm, ...]:
        """What the kernel declares about its arithmetic."""
        return algorithms_of(self.rung, task, dtype, self.macros)

    @cached_property
    def macros(self) -> Mapping[str, str]:
        """What the file defines, with its own values."""
        lines = load(self.path, arch=self.arch).lines.defines
        return {line.name: line.value if isinstance(line.value, str) else line.value.text for line in lines}


def check(candidate: Candidate, task: str, workload: Workload) -> Verdict:
    """Judge one workload: compile, launch, memory and races, correct, deterministic."""
    start = time.perf_counter()
    verdict = _decide(candidate, task, workload)
    return replace(verdict, seconds=time.perf_counter() - start)


def _decide(candidate: Candidate, task: str, workload: Workload) -> Verdict:
    problem = pose(task, workload)
    try:
        kernel = candidate.load(problem)
        run, o, lse = _run(kernel, problem, schedule=0)
    except CompileError as error:
        return Verdict(workload, Status.COMPILE_ERROR, str(error))
    except (Unsupported, ParseError) as error:
        return Verdict(workload, Status.UNSUPPORTED, str(error))
    except LaunchError as error:
        return Verdict(workload, Status.LAUNCH_ERROR, str(error))
    if run.findings:
        return _unsafe(workload, run)
    wrong = _wrong_form(o, lse, problem)
    if wrong is not None:
        return wrong
    judged = judge(problem, candidate.algorithms(task, workload.dtype), o, lse)
    if not judged.passed:
        failed = next(gate for gate in judged.gates if not gate.passed)
        samples = _samples(o, judged)
        return Verdict(workload, Status.INCORRECT_NUMERICAL, str(failed), judged.gates, judged.error, samples=samples)
    shuffled, again, lse_again = _run(kernel, problem, schedule=OTHER_SCHEDULE)
    if shuffled.findings:
        return _unsafe(workload, shuffled)
    if not (_same(o, again) and _same(lse, lse_again)):
        message = "another order of CTAs and warps gives other bits"
        return Verdict(workload, Status.NONDETERMINISTIC, message, judged.gates, judged.error)
    return Verdict(workload, Status.PASSED, "", judged.gates, judged.error)


def _unsafe(workload: Workload, run: Run) -> Verdict:
    late = any(finding.code == "S302" for finding in run.findings)
    status = Status.TIMEOUT if late else Status.UNSAFE
    return Verdict(workload, status, str(run.findings[0]), findings=run.findings)


def _run(kernel: KernelFile, problem: Problem, *, schedule: int) -> tuple[Run, Array, Array | None]:
    """Outputs start as 0xFF, which is NaN; inputs are copies."""
    gpu = VirtualGPU(kernel.arch, schedule=schedule)
    inputs = {name: array.copy() for name, array in problem.arrays.items()}
    run, arrays = kernel.run(gpu, inputs, watch=Probes(InitCheck(), RaceCheck()))
    if "o" not in arrays:
        raise LaunchError(f"{kernel.path} declares no output `o`; a task's kernel names its arrays as the task does")
    return run, arrays["o"], arrays.get("lse")


def _wrong_form(o: Array, lse: Array | None, problem: Problem) -> Verdict | None:
    workload = problem.workload
    if o.shape != workload.shape.q or (lse is not None and lse.shape != workload.shape.lse):
        return Verdict(workload, Status.INCORRECT_SHAPE, f"o is {o.shape}, not {workload.shape.q}")
    if o.dtype != numpy_dtype(workload.dtype):
        return Verdict(workload, Status.INCORRECT_DTYPE, f"o is {o.dtype}, not {numpy_dtype(workload.dtype)}")
    return None


def _same(a: Array | None, b: Array | None) -> bool:
    return (a is None and b is None) or (a is not None and b is not None and a.tobytes() == b.tobytes())


def _samples(o: Array, judged: Judgement) -> tuple[Sample, ...]:
    """The worst elements first, NaN above all."""
    expected = judged.gold.o
    error = np.abs(o.astype(np.float64) - expected)
    order = np.argsort(np.where(np.isnan(error), np.inf, error), axis=None)[::-1][:SAMPLES]
    places = [tuple(int(i) for i in np.unravel_index(at, o.shape)) for at in order]
    return tuple(Sample(place, float(o[place]), float(expected[place])) for place in places)
