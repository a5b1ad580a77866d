"""The tool `check`: a verdict, and the cure of the first failure."""

import atexit
import functools
import time
from dataclasses import replace
from typing import Annotated, Literal

from mcp.types import CallToolResult
from pydantic import Field

from weft.core.finding_codes import Severity
from weft.core.status import Status
from weft.engines.kernel_file import MAX_STEPS
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy
from weft.judge.judging import LIMITS, Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.runs import Refused
from weft.judge.scope import Scope, hint_for, scope_of
from weft.judge.select import Choice, Supports, find_candidate, followed, plan, settled
from weft.judge.verdict import Conclusion, Verdict, conclude
from weft.judge.verdict_json import verdict_record
from weft.supervise.records import CandidateSource, Request
from weft.supervise.supervisor import Supervisor
from weft.tasks.task import Workload

from .answers import CheckAnswer, reply
from .calls import AnyContext, Progress, carried_out
from .options import (
    Detail,
    Dtypes,
    Encodings,
    Gpu,
    Language,
    Launch,
    Masks,
    Path,
    Regimes,
    Shapes,
    Task,
    Text,
    chosen,
)
from .sources import Given

FINDINGS, ALL_FINDINGS = 3, 50
RAN = (Status.UNSAFE, Status.INCORRECT_NUMERICAL, Status.NONDETERMINISTIC)
"""Statuses of a kernel that ran, so that `diagnose` can find the cause."""
_CURES = {
    Status.RESOURCE_ERROR: "use smaller tiles, or fewer threads",
    Status.TIMEOUT: "look for an infinite loop, or use a smaller shape",
    Status.LOST: "check again: the kernel was not judged",
}


def check(
    context: AnyContext,
    path: Path = "",
    text: Text = "",
    language: Language = "cuda",
    launch: Launch = "",
    task: Task = "",
    shapes: Shapes = None,
    regimes: Regimes = None,
    masks: Masks = None,
    dtypes: Dtypes = None,
    encodings: Encodings = None,
    seeds: Annotated[int, Field(ge=1, description="Seeds per workload.")] = 3,
    max_steps: Annotated[int, Field(ge=1, description="Limit of loop iterations per launch.")] = MAX_STEPS,
    gpu: Gpu = "l4",
    detail: Detail = False,
) -> Annotated[CallToolResult, CheckAnswer]:
    """Judge a kernel: memory, races, initialisation, numbers against float64, determinism. Stops at a failure."""
    with carried_out():
        given, progress = Given(path, text, language, launch), Progress(context)
        choice = chosen(shapes, regimes, masks, dtypes, encodings, tuple(range(seeds)))
        if given.text:
            source = CandidateSource(given.text, given.language, given.launch)
            request = Request(
                source, task or "sdpa", choice=choice, score=None, chip=gpu, max_steps=max_steps, within_limits=True
            )
            return reply(_supervised(request, detail, progress))
        candidate, supports = find_candidate(given.path, task=task or None, gpu=gpu)
        return reply(_judged(replace(candidate, max_steps=max_steps), supports, choice, detail, progress))


def _judged(candidate: Candidate, supports: Supports, choice: Choice, detail: bool, progress: Progress) -> CheckAnswer:
    """Judge a file of the user in this process, as `weft check` does."""
    start = time.monotonic()
    verdicts: list[Verdict] = []
    todo: tuple[Workload, ...] = ()
    scope = Scope()
    try:
        todo = plan(supports, choice, strict=True, within_limits=True)
        runs, follow = LocalRuns(candidate), followed(supports, choice)
        judging = Judging(
            runs, supports.task, todo, Policy(stop=True, limits=LIMITS[:1] if follow is not None else ()), follow=follow
        )
        for judged in judging:
            verdicts.append(judged.verdict)
            todo = tuple(judging.todo)
            progress.tell(judged.verdict.label, len(todo))
        found = conclude(verdicts, len(todo))
        hint = hint_for(runs, settled(supports, choice), verdicts)
        scope = replace(scope_of(supports, choice, verdicts), hint=hint)
    except Refused as error:
        found = Conclusion(error.status, error.message, None, 0, len(todo))
    return _answer(found, detail, scope, seconds=time.monotonic() - start, isolated=False)


def _supervised(request: Request, detail: bool, progress: Progress) -> CheckAnswer:
    """Judge text, which is untrusted, under a supervisor."""
    found = _supervisor().evaluate(
        request, progress=lambda judged, planned: progress.tell(f"{judged} of {planned} workloads judged", planned)
    )
    concluded = Conclusion(found.status, found.message or found.stderr, found.failure, found.judged, found.planned)
    return _answer(concluded, detail, found.scope, seconds=found.seconds, isolated=True)


def _answer(found: Conclusion, detail: bool, scope: Scope, *, seconds: float, isolated: bool) -> CheckAnswer:
    failure = found.failure
    most = ALL_FINDINGS if detail else FINDINGS
    return CheckAnswer(
        verdict=_verdict(found.status),
        cure=_cure(found),
        status=str(found.status),
        next=_next(found.status),
        judged=found.judged,
        planned=found.planned,
        message=found.message,
        failure=verdict_record(failure, timed=False, findings=most) if failure is not None else None,
        isolated=isolated,
        seconds=round(seconds, 1),
        judged_for=scope.judged_for,
        skipped=scope.skip_lines,
        hint=scope.hint,
    )


@functools.cache
def _supervisor() -> Supervisor:
    """Return one supervisor for all calls: its fork server takes a second to start."""
    made = Supervisor()
    atexit.register(made.close)
    return made


def _cure(found: Conclusion) -> str:
    if found.passed:
        return ""
    findings = found.failure.findings if found.failure is not None else ()
    if findings and findings[0].level is Severity.ERROR:
        return findings[0].remedy
    return "call `diagnose` to find the cause" if found.status in RAN else _CURES.get(found.status, "see the message")


def _next(status: Status) -> str:
    if status is Status.PASSED:
        return "call `profile` to see what limits it"
    if status in RAN:
        return "call `diagnose` with the same source for stage, line and cause; fix it, then `check` again"
    return f"{'' if status.decided else 'the kernel was not judged; '}fix it, then `check` again"


def _verdict(status: Status) -> Literal["passed", "failed", "not_judged"]:
    if not status.decided:
        return "not_judged"
    return "passed" if status is Status.PASSED else "failed"
