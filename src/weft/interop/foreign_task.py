"""A problem of another system as a task of Weft: the arrays of each case, expected outputs, and its tolerance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from weft.attention.dtypes import DTYPES, Array
from weft.attention.error_report import compare, difference
from weft.attention.gates import GateResult, element_gate
from weft.attention.shapes import Shape
from weft.core.errors import UsageError
from weft.kernels.ladder import ELEMENTS
from weft.tasks.attention_problem import AttentionProblem, judge_attention
from weft.tasks.task import Axes, Declared, Judgement, Output, Outputs, Problem, Task, Workload

RELATIVE = "relative"
"""The part of a verdict with the relative errors, as flashinfer-bench defines them."""

RELATIVE_FLOOR = 1e-8
"""Added to |expected| before dividing."""


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of another system."""

    atol: float
    rtol: float
    either: bool = False
    """True: one of the two limits must hold. False: |error| ≤ atol + rtol·|expected|, as in torch.allclose."""
    bad_share: float = 0.0
    """The share of elements that may be beyond the limit."""

    def limit(self, expected: Array) -> Array:
        """Return the largest allowed error of each element."""
        size = np.abs(expected.astype(np.float64))
        if self.either:
            limit = np.maximum(self.atol, self.rtol * (size + RELATIVE_FLOOR))
        else:
            limit = self.atol + self.rtol * size
        return np.where(np.isfinite(size), limit, 0.0)  # only infinity equals infinity


@dataclass(frozen=True)
class Case:
    """One call: arrays by the names of the kernel's launch lines."""

    name: str
    arrays: Mapping[str, Array]
    expected: Mapping[str, Array]
    """The reference's outputs, in the kernel's output types; the error of the first one is shown."""
    mask: str | None = None
    """Of an `sdpa` call with q, k, v, o: the mask. Weft's own gates are then checked, too."""


@dataclass(frozen=True)
class _ForeignProblem(Problem):
    case: Case = field(default_factory=lambda: Case("", {}, {}))

    def defines(self) -> dict[str, str]:
        """Return the macro for the type of the first output, if the kernel has one; all else is fixed in its file."""
        return {"ELEMENT": ELEMENTS[self.workload.dtype]}


def foreign_task(name: str, cases: Sequence[Case], tolerance: Tolerance) -> tuple[Task, list[Workload]]:
    """Return the task of these cases, and a workload for each. The cases must agree in their inputs and outputs."""
    if not cases:
        raise UsageError(f"{name} has no cases")
    by_name = {case.name: case for case in cases}
    if len(by_name) != len(cases):
        raise UsageError(f"{name}: two cases have the same name")
    first = cases[0]

    def draw(workload: Workload) -> Problem:
        case = by_name[workload.shape.name]
        return _ForeignProblem(workload, case.arrays, case)

    def reference(problem: _ForeignProblem) -> Outputs:
        return problem.case.expected

    def judge(problem: _ForeignProblem, outputs: Outputs, declared: Declared) -> Judgement:
        return _judge(problem, outputs, declared, tolerance)

    outputs = tuple(_output(each, by_name) for each in first.expected)
    task = Task(
        name=name,
        what="",
        inputs=tuple(first.arrays),
        outputs=outputs,
        stages=(),
        draw=draw,
        reference=reference,
        judge=judge,
        workloads=Axes(()),
        quick=Axes(()),
        mutants=(),
        right={},
        certified_on=(),
    )
    return task, [_workload(case) for case in cases]


def element_of(array: Array) -> str | None:
    """Return the name of an array's type; None if outputs cannot have it."""
    return next((name for name, dtype in DTYPES.items() if dtype == array.dtype and name in ELEMENTS), None)


def _output(name: str, cases: Mapping[str, Case]) -> Output:
    element = element_of(next(iter(cases.values())).expected[name])
    if element is None:
        raise UsageError(f"output {name} must be float32, float16 or bfloat16")
    return Output(name, lambda shape: cases[shape.name].expected[name].shape, dtype=element)


def _workload(case: Case) -> Workload:
    element = element_of(next(iter(case.expected.values())))
    return Workload(_shape(case), element or "f32", case.mask or "none", "unit_normal", 0)


def _shape(case: Case) -> Shape:
    if case.mask is None:
        return Shape(case.name, 1, 1, 1, 1, 1, 1)
    (b, hq, sq, d), (_, hkv, skv, _) = case.arrays["q"].shape, case.arrays["k"].shape
    return Shape(case.name, b, hq, hkv, sq, skv, d)


def _judge(problem: _ForeignProblem, outputs: Outputs, declared: Declared, tolerance: Tolerance) -> Judgement:
    case = problem.case
    gates: list[GateResult] = []
    if case.mask is not None:
        q, k, v = (case.arrays[name] for name in "qkv")
        own = AttentionProblem(problem.workload, case.arrays, q, k, v)
        gates += judge_attention(own, outputs, replace(declared, rung=None)).gates
    relative: list[Array] = []
    for name, expected in case.expected.items():
        out, wanted = _four(outputs[name]), _four(expected)
        limit = tolerance.limit(wanted)
        gates.append(_shared(element_gate(name, out, wanted, limit), out, wanted, limit, tolerance.bad_share))
        relative.append(_relative(out, wanted).ravel())
    shown = next(iter(case.expected))
    error = compare(_four(outputs[shown]), _four(case.expected[shown]))
    joined = _four(np.concatenate(relative))
    parts = {RELATIVE: compare(joined, np.zeros_like(joined))}
    return Judgement(tuple(gates), error, case.expected[shown], parts)


def _relative(out: Array, expected: Array) -> Array:
    size = np.abs(expected.astype(np.float64))
    apart = np.abs(difference(out, expected))
    return np.where(np.isfinite(size), apart / (np.where(np.isfinite(size), size, 0.0) + RELATIVE_FLOOR), apart)


def _shared(gate: GateResult, out: Array, expected: Array, limit: Array, bad_share: float) -> GateResult:
    """Return the gate where a share of elements may exceed the limit. NaN always exceeds it."""
    if gate.passed or not bad_share:
        return gate
    beyond = float((~(np.abs(difference(out, expected)) <= limit)).mean())
    return replace(gate, passed=beyond <= bad_share and bool(np.isfinite(out.astype(np.float64)).all()))


def _four(array: Array) -> Array:
    """Return the array with four dimensions, as reports need it; rows without a visible key are equal infinities."""
    columns = array.shape[-1] if array.ndim > 1 else 1
    return array.reshape(1, 1, -1, columns)
