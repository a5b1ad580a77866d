"""Judge a kernel on any engine by the gates of its task. What an engine cannot watch is not judged."""

import time
from dataclasses import dataclass, replace

from weft.core.errors import CompileError, LaunchError, ParseError, ResourceError, Unsupported
from weft.core.records import Run
from weft.engines.protocol import Engine
from weft.tasks.task import Outputs, Problem, Task, Workload

from .check import Candidate, judged_verdict, outputs_of, unsafe_verdict, wrong_form
from .verdict import Status, Verdict


@dataclass(frozen=True)
class OnEngine:
    """What an engine's run showed."""

    verdict: Verdict
    problem: Problem
    outputs: Outputs | None
    """None if nothing came out."""
    run: Run | None = None


def check_on(engine: Engine, candidate: Candidate, task: Task, workload: Workload) -> OnEngine:
    """Compile, launch, shape and type, numbers, and the same bits a second time."""
    start = time.perf_counter()
    found = _decide(engine, candidate, task, workload)
    return replace(found, verdict=replace(found.verdict, seconds=time.perf_counter() - start))


def _decide(engine: Engine, candidate: Candidate, task: Task, workload: Workload) -> OnEngine:
    problem = task.draw(workload)

    def run() -> tuple[Run, Outputs]:
        inputs = {name: array.copy() for name, array in problem.arrays.items()}
        done, arrays = kernel.run(engine, inputs, max_steps=candidate.max_steps)
        return done, outputs_of(kernel, task, arrays)

    try:
        kernel = candidate.load(problem)
        first, outputs = run()
        again, repeated = run() if first.clean else (first, outputs)
    except CompileError as error:
        return OnEngine(Verdict(workload, Status.COMPILE_ERROR, str(error)), problem, None)
    except (Unsupported, ParseError) as error:
        return OnEngine(Verdict(workload, Status.UNSUPPORTED, str(error)), problem, None)
    except LaunchError as error:
        refused = Status.RESOURCE_ERROR if isinstance(error, ResourceError) else Status.LAUNCH_ERROR
        return OnEngine(Verdict(workload, refused, str(error)), problem, None)
    for done in (first, again):
        if not done.clean:
            return OnEngine(unsafe_verdict(workload, done), problem, None, done)
    wrong = wrong_form(outputs, task, problem)
    if wrong is not None:
        return OnEngine(wrong, problem, outputs, first)
    judged = task.judge(problem, outputs, candidate.declared_at(kernel, problem))
    verdict = judged_verdict(task, workload, judged, outputs)
    if verdict.passed and any(outputs[name].tobytes() != repeated[name].tobytes() for name in outputs):
        verdict = replace(verdict, status=Status.NONDETERMINISTIC, message="a second run gives other bits")
    return OnEngine(verdict, problem, outputs, first)
