"""The tool `check`: one verdict, and the cure of what failed first."""

import atexit
import functools
import time
from dataclasses import replace
from typing import Annotated, Literal

from mcp.types import CallToolResult
from pydantic import Field

from weft.core.finding_codes import Severity
from weft.engines.kernel_file import MAX_STEPS
from weft.judge.check import Candidate, check_debug
from weft.judge.check import check as judge
from weft.judge.select import Choice, Supports, find_candidate, smallest, workloads
from weft.judge.verdict import Status, Verdict
from weft.supervise.records import Outcome, Request, Source
from weft.supervise.supervisor import Supervisor

from .answers import CheckAnswer, finding_answers, reply
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
OPEN = (Outcome.UNSUPPORTED, Outcome.REJECTED, Outcome.LOST)
"""They say nothing of the kernel's correctness."""
RAN = (Outcome.UNSAFE, Outcome.INCORRECT_NUMERICAL, Outcome.NONDETERMINISTIC)
"""It left something that `diagnose` can look into."""
_CURES = {
    Outcome.RESOURCE_ERROR: "use smaller tiles, or fewer threads",
    Outcome.TIMEOUT: "look for an endless loop, or give a smaller shape",
    Outcome.LOST: "nothing to mend: check again",
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
    max_steps: Annotated[int, Field(ge=1, description="Loop iterations that a launch may run.")] = MAX_STEPS,
    gpu: Gpu = "l4",
    detail: Detail = False,
) -> Annotated[CallToolResult, CheckAnswer]:
    """Judge a kernel: memory, races, initialisation, numbers against float64, determinism. Stops at a failure."""
    with carried_out():
        given, progress = Given(path, text, language, launch), Progress(context)
        choice = chosen(shapes, regimes, masks, dtypes, encodings, tuple(range(seeds)))
        if given.text:
            source = Source(given.text, given.language, given.launch)
            request = Request(source, task or "sdpa", choice=choice, score=None, chip=gpu, max_steps=max_steps)
            return reply(_supervised(request, detail, progress))
        candidate, supports = find_candidate(given.path, task=task or None, gpu=gpu)
        return reply(_judged(replace(candidate, max_steps=max_steps), supports, choice, detail, progress))


def _judged(candidate: Candidate, supports: Supports, choice: Choice, detail: bool, progress: Progress) -> CheckAnswer:
    """A file of the user's, as `weft check` does."""
    start = time.monotonic()
    todo = list(workloads(supports, choice))
    judged, failed = 0, None
    for workload in todo:
        progress.tell(str(workload), len(todo))
        verdict = judge(candidate, supports.task, workload, tools=["all"])
        judged += 1
        if not verdict.passed:
            failed = verdict
            break
    note = ""
    if todo and failed is None:
        in_debug_build = check_debug(candidate, supports.task, smallest(todo))
        # A -G build that cannot be judged says nothing about the kernel as it runs; but it is said.
        if in_debug_build is not None and in_debug_build.status is Status.UNSUPPORTED:
            note = in_debug_build.message
        else:
            failed = in_debug_build
    seconds = time.monotonic() - start
    if not todo:
        message = "the kernel supports none of the workloads that were asked for: leave masks, dtypes or shapes out"
        return _answer(Outcome.REJECTED, message, None, detail, (0, 0), seconds, isolated=False)
    outcome = Outcome.of(failed.status) if failed is not None else Outcome.PASSED
    message = failed.message if failed is not None else note
    return _answer(outcome, message, failed, detail, (judged, len(todo)), seconds, isolated=False)


def _supervised(request: Request, detail: bool, progress: Progress) -> CheckAnswer:
    """Text, which may do anything, under a supervisor."""
    found = _supervisor().evaluate(
        request, progress=lambda judged, planned: progress.tell(f"{judged} of {planned} workloads judged", planned)
    )
    counted = (found.judged, found.planned)
    message = found.message or found.stderr
    return _answer(found.outcome, message, found.failure, detail, counted, found.seconds, isolated=True)


def _answer(
    outcome: Outcome,
    message: str,
    failed: Verdict | None,
    detail: bool,
    counted: tuple[int, int],
    seconds: float,
    *,
    isolated: bool,
) -> CheckAnswer:
    verdict = _verdict(outcome)
    findings = [each for each in (failed.findings if failed is not None else ()) if each.level is not Severity.INFO]
    shown = finding_answers(findings, ALL_FINDINGS if detail else FINDINGS, detail=detail)
    samples = failed.samples[: None if detail else 2] if failed is not None else ()
    return CheckAnswer(
        verdict=verdict,
        cure=shown[0].cure if shown else _cure(outcome),
        status=str(outcome),
        next=_next(outcome),
        judged=counted[0],
        planned=counted[1],
        message=message,
        workload=failed.label if failed is not None else "",
        findings=shown,
        more_findings=len(findings) - len(shown),
        samples=tuple(f"{list(each.index)}: {each.out:g}, expected {each.expected:g}" for each in samples),
        isolated=isolated,
        seconds=round(seconds, 1),
    )


@functools.cache
def _supervisor() -> Supervisor:
    """One for all calls: its fork server takes a second to start."""
    made = Supervisor()
    atexit.register(made.close)
    return made


def _cure(outcome: Outcome) -> str:
    if outcome is Outcome.PASSED:
        return ""
    return "`diagnose` finds it" if outcome in RAN else _CURES.get(outcome, "do what the message says")


def _next(outcome: Outcome) -> str:
    if outcome is Outcome.PASSED:
        return "`profile` says what limits it"
    if outcome in RAN:
        return "`diagnose` with the same source names stage, line and cause; mend it, then `check` again"
    open_still = "this is neither right nor wrong; " if outcome in OPEN else ""
    return f"{open_still}mend it, then `check` again"


def _verdict(outcome: Outcome) -> Literal["passed", "failed", "not_judged"]:
    if outcome in OPEN:
        return "not_judged"
    return "passed" if outcome is Outcome.PASSED else "failed"
