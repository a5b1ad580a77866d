"""The judge: runs a candidate on a workload and decides, stopping at the first failure.

Every route to a verdict (`weft check`, reports, agents, workers, searches, folders of other systems) goes through
`judge` here or `Judging` in `judging.py`. They differ in where the candidate runs: see `runs.py`.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft.attention.dtypes import Array
from weft.attention.errors import ContractError
from weft.core.finding_codes import FINDING_CODES
from weft.core.records import Dim3, Run, worst_first
from weft.core.status import Status
from weft.engines.kernel_file import MAX_STEPS
from weft.engines.sample import CannotSample, CtaSample
from weft.kernels.ladder import RUNGS
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.task import Declared, Judgement, Outputs, Problem, Task, Workload

from .candidate import Candidate
from .large_sizes import large_calls
from .local_runs import LocalRuns
from .runs import REFUSALS, Call, Ran, Refused, Runs, Watch, different, same_bits, status_of
from .second_call import half_shared, other_inputs
from .verdict import Sample, Verdict

SAMPLES = 5
LEAST_STEPS, STEPS_PER_PRODUCT = 1 << 22, 16
"""Loop iterations that a kernel may need: a single thread computing Q times K and P times V needs fewer."""
NO_DEBUG_BUILD = (Status.COMPILE_ERROR, Status.RESOURCE_ERROR, Status.LAUNCH_ERROR, Status.UNSUPPORTED)
"""Statuses that mean that there is no -G build to judge."""
KEEPS_STATE = "the kernel keeps state between launches"
MOST_TILE = 4096
"""Upper limit of BLOCK_M, BLOCK_N and SPLITS, which the emulation takes from what a candidate declares."""


@dataclass(frozen=True)
class Policy:
    """How workloads are judged."""

    tools: tuple[str, ...] = ("all",)
    """Checkers that watch the first run."""
    sampled: bool = False
    """Run only some CTAs of a rung's grid (at least eight) and judge their rows; what fails is judged again in full."""
    debug_build: bool = True
    """Check for uninitialised reads once more in the -G build of a kernel that passed everything."""
    large_sizes: bool = True
    """Check the index arithmetic of a kernel that passed everything at the largest real sizes."""
    stop: bool = False
    """Stop at the first workload that fails."""
    limits: tuple[str, ...] = ()
    """What the kernel may refuse if the same build runs with another value: `types` or `dimensions` (head dimensions).
    Where the judge chose the value, such a refusal is a limit of the kernel and not a failure."""
    strict: bool = False
    """Whether a warning fails a workload as an error does."""
    second_call: bool = False
    """Judge a call with other inputs on the device state that this workload's runs left; `Judging` sets it once."""

    @property
    def checks_debug_build(self) -> bool:
        """Return whether the -G build is checked, which only initcheck does."""
        return self.debug_build and bool({"all", "initcheck"} & set(self.tools))


@dataclass(frozen=True)
class Judged:
    """A verdict, and what it was made of."""

    verdict: Verdict
    problem: Problem
    outputs: Outputs | None = None
    """None if there are no outputs."""
    run: Run | None = None


@dataclass(frozen=True)
class Part:
    """A part of a large grid: CTAs that run, and the queries and heads whose rows of O they must have written."""

    sample: CtaSample
    rows: Array
    heads: Array

    def outputs(self, outputs: Outputs) -> Outputs:
        """O (b, h, s, d) and LSE (b, h, s) of these rows."""
        return {name: np.ascontiguousarray(array[:, self.heads][:, :, self.rows]) for name, array in outputs.items()}


def judge(
    runs: Runs,
    task: Task,
    workload: Workload,
    policy: Policy = Policy(),  # noqa: B008  (frozen)
) -> Judged:
    """Judge one workload: compile, launch, memory and races, shape and type, numbers, same bits when repeated."""
    start = time.perf_counter()
    judged = _decide(runs, task, workload, policy)
    if judged.verdict.ctas_left_out and not judged.verdict.passed:
        judged = _decide(runs, task, workload, replace(policy, sampled=False))
    return _timed(judged, start)


def judge_debug_build(runs: Runs, task: Task, workload: Workload, *, strict: bool = False) -> Judged | None:
    """Check for uninitialised reads in the kernel's -G build, where the optimiser has deleted no read.

    Returns None if nothing was found. It is many times slower, so give the smallest workload. A build that cannot be
    judged means nothing for the optimised kernel: its verdict is UNSUPPORTED and `aside`, a note next to a pass.
    """
    start = time.perf_counter()
    problem = task.draw(workload)
    try:
        run = runs.run_debug(call_of(task, problem))
    except REFUSALS as error:
        if status_of(error) not in NO_DEBUG_BUILD:  # it ran, so the error that ended it is not a note next to a pass
            raise
        message = f"its debug build (-G) cannot be judged: {error}"
        verdict, run = Verdict(workload, Status.UNSUPPORTED, message), None
    else:
        if run is None or run.passes(strict=strict):
            return None
        verdict = _unsafe(workload, run)
    return _timed(Judged(replace(verdict, debug_build=True), problem, None, run), start)


def judge_large_sizes(runs: Runs, task: Task, workload: Workload, *, strict: bool = False) -> Judged | None:
    """Judge index arithmetic of the workload's build at sizes that are too large to run. None: nothing found."""
    start = time.perf_counter()
    problem = task.draw(workload)
    run = runs.check_indices(problem.defines(), large_calls(task, workload))
    if run.passes(strict=strict):
        return None
    verdict = replace(_unsafe(workload, run), large_sizes=True)
    return _timed(Judged(verdict, problem, None, run), start)


def check(
    candidate: Candidate, task: Task, workload: Workload, *, sampled: bool = False, tools: Sequence[str] = ("all",)
) -> Verdict:
    """Judge one workload of a file in this process."""
    return judge(LocalRuns(candidate), task, workload, Policy(tuple(tools), sampled=sampled)).verdict


def call_of(task: Task, problem: Problem) -> Call:
    """Return what a candidate receives of a problem."""
    return Call(problem.defines(), problem.arrays, tuple(output.name for output in task.outputs))


def smallest(todo: Sequence[Workload]) -> Workload:
    """Return the workload with the least work."""
    return min(todo, key=lambda workload: workload.shape.products)


def _decide(runs: Runs, task: Task, workload: Workload, policy: Policy) -> Judged:
    problem = task.draw(workload)
    try:
        part, first = _first_run(runs, task, problem, policy)
        judged = _judge_run(runs, task, problem, part, first, strict=policy.strict)
        if policy.second_call and part is None and judged.verdict.passed:
            return judge_second_call(runs, task, judged)
        return judged
    except REFUSALS as error:
        return Judged(Verdict(workload, status_of(error), str(error)), problem)


def _first_run(runs: Runs, task: Task, problem: Problem, policy: Policy) -> tuple[Part | None, Ran]:
    call = call_of(task, problem)
    watch = Watch(policy.tools, most_steps(runs.max_steps, problem))
    try:
        part = _part(runs, call, problem) if policy.sampled else None
        return part, runs.run(call, replace(watch, ctas=part.sample if part is not None else None))
    except CannotSample:
        return None, runs.run(call, watch)


def _judge_run(
    runs: Runs, task: Task, problem: Problem, part: Part | None, first: Ran, *, strict: bool = False
) -> Judged:
    workload, run, left = problem.workload, first.run, first.outputs
    left_out = run.counters.get("ctas_left_out", 0)
    if not run.passes(strict=strict):
        unsafe = replace(_unsafe(workload, run), ctas_left_out=left_out)
        return Judged(_with_numbers(unsafe, runs.declared, task, problem, part, first), problem, left, run)
    _require_outputs(task, left)
    wrong = _wrong_form(left, task, problem)
    if wrong is not None:
        return Judged(wrong, problem, left, run)
    declared, any_order = _believed(runs.declared, first), _in_any_order(runs.declared, task)
    repeated = runs.again()  # a child repeats the run while the first is judged here
    outputs = part.outputs(left) if part is not None else left
    verdict = replace(
        _judge_numbers(task, problem, part, outputs, declared),
        findings=worst_first(run.findings),
        suppressed=run.suppressed,
        ctas_left_out=left_out,
    )
    if verdict.passed:
        for ran in repeated:
            if not ran.run.clean:
                return Judged(replace(_unsafe(workload, ran.run), ctas_left_out=left_out), problem, left, run)
            again = part.outputs(ran.outputs) if part is not None else ran.outputs
            apart = different(outputs, again)
            if not any_order.issuperset(apart):
                hint = _may_be_declared(task, apart)
                message = f"{_repeated_by(runs, task, problem, part, first)} gives different bits{hint}"
                return Judged(replace(verdict, status=Status.NONDETERMINISTIC, message=message), problem, left, run)
            if apart:
                _require_outputs(task, ran.outputs)
                other = _wrong_form(ran.outputs, task, problem) or _judge_numbers(task, problem, part, again, declared)
                if not other.passed:
                    message = f"with {runs.repeated_by}: {other.message}"
                    return Judged(replace(other, message=message, findings=verdict.findings), problem, ran.outputs, run)
                verdict = replace(verdict, order_dependent=tuple(sorted({*verdict.order_dependent, *apart})))
    return Judged(verdict, problem, left, run)


def _in_any_order(declared: Declared, task: Task) -> frozenset[str]:
    """Return the outputs whose bits may depend on the order: declared ones of which the task permits it."""
    permitted = [output.name for output in task.outputs if output.any_order]
    for name in declared.nondeterministic:
        if name not in permitted and any(output.name == name for output in task.outputs):
            rule = f"only {', '.join(permitted)} may be" if permitted else "no output may be"
            raise Refused(Status.REJECTED, f"{name} is declared nondeterministic; in task {task.name} {rule}")
    return frozenset(declared.nondeterministic)


def _may_be_declared(task: Task, names: Sequence[str]) -> str:
    """Return how to declare that these outputs depend on the order, if the task permits it for all of them."""
    if not all(task.output(name).any_order for name in names):
        return ""
    named = ", ".join(names)
    return f" of {named}; if atomics add them up, declare it: `// weft: nondeterministic {named} : reason`"


def judge_second_call(runs: Runs, task: Task, judged: Judged) -> Judged:
    """Judge calls with other inputs on the device that the runs of a workload left; `judged` itself if they are right.

    Repetitions have the same inputs, so a kernel that keeps its outputs in a device variable and returns them at the
    next launch passes them; so does one that recognises its inputs by their addresses, which here are those of the
    previous call, or by some of their elements. A result that is also wrong with these inputs on a fresh device is not
    a case of kept state.
    """
    other = other_inputs(task, judged.problem)
    last = judged.problem if other is None else other
    watch = Watch((), most_steps(runs.max_steps, last), kept=True)
    try:
        runs.run(call_of(task, judged.problem), watch)
        if other is not None:
            second = _judge_run(runs, task, other, None, runs.run(call_of(task, other), watch))
            if not second.verdict.passed:
                return _blame(runs, task, judged, second)
        return judged if _same_when_used(runs, call_of(task, last), watch) else _keeps_some(judged)
    except REFUSALS as error:
        return _blame(runs, task, judged, Judged(Verdict(last.workload, status_of(error), str(error)), last))


def _blame(runs: Runs, task: Task, judged: Judged, second: Judged) -> Judged:
    """Return the verdict on a wrong second call: kept state, unless it is wrong on a fresh device, too."""
    called = second.problem.workload
    alone = _decide(runs, task, called, Policy(()))
    if not alone.verdict.passed:
        return alone
    with_inputs = f"with other inputs ({called.regime} seed {called.seed})"
    message = f"a second call on the same device, {with_inputs}, is wrong: {KEEPS_STATE}: {second.verdict.message}"
    return replace(second, verdict=replace(second.verdict, workload=judged.verdict.workload, message=message))


def _same_when_used(runs: Runs, call: Call, watch: Watch) -> bool:
    """Whether a call that shares half of its elements with the previous one gives the bits of a fresh device."""
    mixed = half_shared(call)
    if not runs.one_order or same_bits(call.inputs, mixed.inputs):
        return True
    runs.run(call, watch)
    used, fresh = runs.run(mixed, watch), runs.run(mixed, replace(watch, kept=False))
    return not fresh.run.clean or (used.run.clean and same_bits(used.outputs, fresh.outputs))


def _keeps_some(judged: Judged) -> Judged:
    """Return the verdict where only a call that shares elements with the previous one shows it; it has no reference."""
    message = f"{KEEPS_STATE}: a call that shares half of its inputs with the previous call gives different bits"
    return replace(judged, verdict=replace(judged.verdict, status=Status.NONDETERMINISTIC, message=message))


def _repeated_by(runs: Runs, task: Task, problem: Problem, part: Part | None, first: Ran) -> str:
    """Return why a repetition differs: a second call on the same device, if one in the same order differs as well."""
    if not runs.one_order:
        return runs.repeated_by
    ctas = part.sample if part is not None else None
    ran = runs.run(call_of(task, problem), Watch((), most_steps(runs.max_steps, problem), ctas, kept=True))
    if same_bits(first.outputs, ran.outputs):
        return runs.repeated_by
    return f"{KEEPS_STATE}: a second call on the same device"


def most_steps(asked: int, problem: Problem) -> int:
    """Return the loop budget of a launch: an infinite loop of a small workload ends after seconds, not minutes."""
    if asked != MAX_STEPS:
        return asked
    elements = sum(array.size for array in problem.arrays.values())  # the problem is not attention
    return min(MAX_STEPS, LEAST_STEPS + STEPS_PER_PRODUCT * max(problem.workload.shape.products, elements))


def _part(runs: Runs, call: Call, problem: Problem) -> Part | None:
    """Return the part of a rung's grid to judge; for other kernels it is not known which rows a CTA computes."""
    rung = RUNGS.get(runs.declared.rung or "")
    if rung is None or rung.rows is None or not isinstance(problem, AttentionProblem):
        return None
    return choose_part(int(runs.declared.macros[rung.rows]), runs.grids(call)[0], problem)


def _require_outputs(task: Task, outputs: Outputs) -> None:
    for output in task.outputs:
        if output.name not in outputs and not output.optional:
            message = f"the kernel declares no output `{output.name}`, which task {task.name} requires"
            raise Refused(Status.LAUNCH_ERROR, message)


def _wrong_form(outputs: Outputs, task: Task, problem: Problem) -> Verdict | None:
    """Return the verdict on an output of another shape or type than the task's, if there is one."""
    workload = problem.workload
    for name, array in outputs.items():
        output = task.output(name)
        shape, dtype = output.shape(workload.shape), output.numpy_dtype(workload)
        if array.shape != shape:
            return Verdict(workload, Status.INCORRECT_SHAPE, f"{name} has shape {array.shape}, expected {shape}")
        if array.dtype != dtype:
            return Verdict(workload, Status.INCORRECT_DTYPE, f"{name} has type {array.dtype}, expected {dtype}")
    return None


def _believed(declared: Declared, ran: Ran) -> Declared:
    """Return what the candidate declares about its arithmetic in this call: splits may depend on the sizes."""
    macros = {**declared.macros, **ran.numbers}
    for name in ("BLOCK_M", "BLOCK_N", "SPLITS", "splits"):
        if name in macros and not (macros[name].isdecimal() and 1 <= int(macros[name][:9]) <= MOST_TILE):
            raise Refused(Status.REJECTED, f"{name} is {macros[name][:40]}; it must be 1 to {MOST_TILE}")
    return replace(declared, macros=macros)


def _judge_numbers(task: Task, problem: Problem, part: Part | None, outputs: Outputs, declared: Declared) -> Verdict:
    """Return the verdict of the gates, with the first wrong elements."""
    held = problem
    if part is not None:
        assert isinstance(problem, AttentionProblem)
        held = problem.part(part.rows, part.heads)
    try:
        judged: Judgement = task.judge(held, outputs, declared)
    except (ContractError, ValueError) as error:
        raise Refused(Status.REJECTED, f"the algorithm that the kernel declares cannot be emulated: {error}") from error
    missing = tuple(output.name for output in task.outputs if output.name not in outputs)
    verdict = Verdict(
        problem.workload, Status.PASSED, "", judged.gates, judged.error, parts=judged.parts, not_judged=missing
    )
    if judged.passed:
        return verdict
    failed = next(gate for gate in judged.gates if not gate.passed)
    samples = _samples(outputs[task.outputs[0].name], judged.expected)
    return replace(verdict, status=Status.INCORRECT_NUMERICAL, message=str(failed), samples=samples)


def _unsafe(workload: Workload, run: Run) -> Verdict:
    """Return the verdict on a run with findings."""
    late = any(finding.code == "S302" for finding in run.findings)
    status = Status.TIMEOUT if late else Status.UNSAFE
    findings = worst_first(run.findings)
    return Verdict(workload, status, str(findings[0]), findings=findings, suppressed=run.suppressed)


def _with_numbers(
    unsafe: Verdict, declared: Declared, task: Task, problem: Problem, part: Part | None, ran: Ran
) -> Verdict:
    """Return the verdict with the gates' result on the numbers, where every launch ran to its end."""
    ended = any(FINDING_CODES[finding.code].ends_launch for finding in ran.run.findings)
    if ended or ran.run.counters.get("launches_left_out", 0):
        return unsafe
    try:
        _require_outputs(task, ran.outputs)
        if _wrong_form(ran.outputs, task, problem) is not None:
            return unsafe
        outputs = part.outputs(ran.outputs) if part is not None else ran.outputs
        said = _judge_numbers(task, problem, part, outputs, _believed(declared, ran))
    except Refused:  # there are no numbers to check
        return unsafe
    return replace(
        unsafe, gates=said.gates, error=said.error, parts=said.parts, not_judged=said.not_judged, samples=said.samples
    )


def _samples(out: Array, expected: Array) -> tuple[Sample, ...]:
    """Return the worst elements, NaN first."""
    error = np.abs(out.astype(np.float64) - expected)
    order = np.argsort(np.where(np.isnan(error), np.inf, error), axis=None)[::-1][:SAMPLES]
    places = [tuple(int(i) for i in np.unravel_index(at, out.shape)) for at in order]
    return tuple(Sample(place, float(out[place]), float(expected[place])) for place in places)


def _timed(judged: Judged, start: float) -> Judged:
    return replace(judged, verdict=replace(judged.verdict, seconds=time.perf_counter() - start))


def choose_part(rows_per_cta: int, grid: Dim3, problem: AttentionProblem) -> Part:
    """Choose at least eight CTAs: first, last, middle (a causal diagonal) and random blocks of queries, in two heads.

    A rung's grid is (blocks of queries, query heads, …); tests/ladder checks that.
    """
    shape, seed = problem.workload.shape, problem.workload.seed
    width, height = grid[:2]
    others = random.Random(f"{problem.workload.regime} {seed}")
    xs = {0, width - 1, width // 2, max(width // 2 - 1, 0), others.randrange(width)}
    ys = {0, height - 1, others.randrange(height)}
    rows = np.concatenate([np.arange(x * rows_per_cta, min((x + 1) * rows_per_cta, shape.sq)) for x in sorted(xs)])
    positions = tuple((x, y) for y in sorted(ys) for x in sorted(xs))
    return Part(CtaSample(positions), rows, np.array(sorted(ys)))
