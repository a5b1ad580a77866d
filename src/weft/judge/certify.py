"""Tests a task's gate: every wrong implementation must fail it on some workload, and no right one on any.

A kernel is judged in its own type, so a gate is certified for one output type at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.engines.element_types import TYPE_WORDS
from weft.tasks.task import Declared, Mutant, Outputs, Problem, Task, Workload


@dataclass(frozen=True)
class GateTrial:
    """The result of the gate on one implementation."""

    name: str
    what: str
    killed_by: str = ""
    """The gate that rejected it; empty: it passed everywhere."""
    workload: Workload | None = None
    """The first workload on which it was rejected."""

    @property
    def survived(self) -> bool:
        return not self.killed_by


@dataclass(frozen=True)
class Certificate:
    """The results of a gate on all implementations of a task in one type."""

    task: str
    dtype: str
    mutants: tuple[GateTrial, ...]
    right: tuple[GateTrial, ...]
    excluded: tuple[tuple[Mutant, str], ...] = ()
    """Mutants that no gate can distinguish from a right kernel in this type, and why."""

    @property
    def survivors(self) -> tuple[GateTrial, ...]:
        return tuple(trial for trial in self.mutants if trial.survived)

    @property
    def wrongly_killed(self) -> tuple[GateTrial, ...]:
        return tuple(trial for trial in self.right if not trial.survived)

    @property
    def holds(self) -> bool:
        return bool(self.mutants) and not self.survivors and not self.wrongly_killed

    def __str__(self) -> str:
        killed, passed = len(self.mutants) - len(self.survivors), len(self.right) - len(self.wrongly_killed)
        mutants = f"{killed} of {len(self.mutants)} mutants killed"
        return f"{mutants}, {passed} of {len(self.right)} correct implementations passed"


Gate = Callable[[Problem, Outputs], str]
"""Returns the name of the gate that rejects these outputs, or empty."""


Progress = Callable[[int, int], None]
"""Receives how many implementations have been judged, and how many there are."""


def certify(
    task: Task, dtype: str = "", todo: Sequence[Workload] = (), *, progress: Progress | None = None
) -> Certificate:
    """Judge all implementations by the task's own gates, as kernels that declare nothing about their arithmetic."""
    known = task.workloads.dtypes
    chosen = TYPE_WORDS.get(dtype, dtype) or _default_dtype(task)
    if chosen not in known:
        raise UsageError(f"type {chosen!r}{did_you_mean(chosen, known)}: use one of {', '.join(known)}")
    todo = [replace(workload, dtype=chosen) for workload in todo or task.certified_on]

    def gate(problem: Problem, outputs: Outputs) -> str:
        judged = task.judge(problem, outputs, Declared())
        return next((each.gate for each in judged.gates if not each.passed), "")

    return hold(task, chosen, [task.draw(workload) for workload in todo], gate, progress=progress)


def _default_dtype(task: Task) -> str:
    """Return the type of the workloads that the task is certified on."""
    if not task.certified_on:
        raise UsageError(f"task {task.name} has no workloads to certify it on; set `certified_on`")
    return task.certified_on[0].dtype


def hold(
    task: Task, dtype: str, problems: Sequence[Problem], gate: Gate, *, progress: Progress | None = None
) -> Certificate:
    """Judge all implementations of a task by any gate."""
    right = [Mutant(name, "right", run, breaks=task.outputs[-1].name) for name, run in task.right.items()]
    wrong = [mutant for mutant in task.mutants if dtype not in mutant.excluded]
    trials = []
    for done, mutant in enumerate((*wrong, *right)):
        if progress is not None:
            progress(done, len(wrong) + len(right))
        trials.append(_try(task, mutant, problems, gate))
    return Certificate(
        task.name,
        dtype,
        tuple(trials[: len(wrong)]),
        tuple(trials[len(wrong) :]),
        tuple((mutant, mutant.excluded[dtype]) for mutant in task.mutants if dtype in mutant.excluded),
    )


def _try(task: Task, mutant: Mutant, problems: Sequence[Problem], gate: Gate) -> GateTrial:
    for problem in problems:
        with np.errstate(all="ignore"):  # mutants are wrong on purpose
            outputs = mutant.run(problem)
        killed_by = gate(problem, _judged(task, mutant, outputs))
        if killed_by:
            return GateTrial(mutant.name, mutant.what, killed_by, problem.workload)
    return GateTrial(mutant.name, mutant.what)


def _judged(task: Task, mutant: Mutant, outputs: Mapping[str, np.ndarray]) -> Outputs:
    """Return what the gates see: all outputs of a mutant that breaks an optional one, else the required outputs."""
    if mutant.breaks and task.output(mutant.breaks).optional:
        return outputs
    return {output.name: outputs[output.name] for output in task.outputs if not output.optional}
