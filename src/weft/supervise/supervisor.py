"""Evaluate candidates, each in its own child process: a crash or hang fails only that candidate.

with Supervisor() as supervisor:
    evaluation = supervisor.evaluate(Request(Source(text)))
"""

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from weft.attention.errors import ContractError
from weft.attention.shapes import shape as shape_of
from weft.core.chips import chip as find_chip
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.core.status import Status
from weft.judge.judge import Policy, smallest
from weft.judge.judging import LIMITS, Judging
from weft.judge.runs import Refused, same_bits
from weft.judge.scope import hint_for, scope_of
from weft.judge.select import Supports, find_candidate, followed, plan
from weft.judge.verdict import Verdict, conclude
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import find_task
from weft.tasks.task import Outputs, Task, Workload

from .children import ChildEnded, Zygote, ZygoteLost
from .counted import Profile
from .isolation import Isolation
from .records import Canonical, Evaluation, Limits, Request
from .remote import Remote

Progress = Callable[[int, int], None]
Seen = Callable[[Verdict, Outputs], None]
"""Called with each verdict and the outputs of its run."""


def _silent(judged: int, planned: int) -> None:
    """Ignores progress."""


def _unseen(verdict: Verdict, outputs: Outputs) -> None:
    """Ignores verdicts."""


class Supervisor:
    """A fork server and its judge: one evaluation at a time. For parallel evaluations use several supervisors."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008  (frozen)
        self.limits = limits
        self._zygote: Zygote | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the fork server and every child."""
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def interrupt(self) -> None:
        """End the running evaluation, if there is one, from another thread. Its status is LOST."""
        if (zygote := self._zygote) is not None:
            zygote.kill()

    @property
    def zygote(self) -> Zygote:
        """Return the fork server; start it when it is first needed, and again if it ended."""
        if self._zygote is not None and not self._zygote.alive:
            self.close()
        if self._zygote is None:
            self._zygote = Zygote()
        return self._zygote

    @property
    def isolation(self) -> Isolation:
        """Return the isolation of its children, tested when the fork server started. Raises ZygoteLost."""
        return self.zygote.isolation

    def canonical_ptx(self, request: Request) -> Canonical:
        """Return the digest of a candidate's code without evaluating it. A child compiles it for the score workload."""
        task = _task(request)
        try:
            self.isolation.require(request.isolation)
            with self.zygote.fork(self.limits, request.source.digest) as child:
                remote = Remote(child, request, task)
                todo = _plan(request, _supports(request, remote))
                score = _score_workload(request)
                return Canonical(Status.PASSED, remote.canonical(score or smallest(todo)))
        except Refused as error:
            return Canonical(error.status, message=error.message)
        except ChildEnded as error:
            return Canonical(error.ended.status, message=error.ended.message)
        except ZygoteLost as error:
            self.close()
            return Canonical(Status.LOST, message=str(error))

    def evaluate(self, request: Request, *, progress: Progress = _silent, seen: Seen = _unseen) -> Evaluation:
        """Judge until the first failure, then profile the score workload. Raises for a wrong request, or NotIsolated.

        `progress` is called with the number of judged workloads and the total, for example to send a heartbeat.
        """
        start = time.perf_counter()
        task = _task(request)
        try:
            held = self.isolation
        except ZygoteLost as error:
            return Evaluation(Status.LOST, str(error))
        held.require(request.isolation)
        found = replace(self._evaluate(request, task, progress, seen), isolation=held.level)
        if request.diagnose and found.failure is not None:
            found = replace(found, diagnosis=self._diagnosis(request, task, found.failure))
        return replace(found, seconds=time.perf_counter() - start)

    def _evaluate(self, request: Request, task: Task, progress: Progress, seen: Seen) -> Evaluation:
        verdicts: list[Verdict] = []
        todo: tuple[Workload, ...] = ()
        outputs: Outputs | None = None
        score = _score_workload(request)
        try:
            with self.zygote.fork(self.limits, request.source.digest) as child:
                remote = Remote(child, request, task)
                supports = _supports(request, remote)
                todo = _plan(request, supports)
                once = request.debug_build  # a search does these checks for its finalists only
                follow = followed(supports, request.choice)
                policy = Policy(
                    debug_build=once, large_sizes=once, stop=True, limits=LIMITS[:1] if follow is not None else ()
                )
                judging = Judging(remote, task, todo, policy, follow=follow)
                for judged in judging:
                    verdicts.append(judged.verdict)
                    todo = tuple(judging.todo)
                    if not judged.verdict.extra:
                        progress(len(verdicts), len(todo))
                        seen(judged.verdict, judged.outputs or {})
                        outputs = judged.outputs if judged.verdict.workload == score else outputs
                found = conclude(verdicts, len(todo))
                evaluation = Evaluation(found.status, found.message, found.judged, found.planned, found.failure)
                if request.within_limits:
                    scope = replace(
                        scope_of(supports, request.choice, verdicts), hint=hint_for(remote, supports, verdicts)
                    )
                    evaluation = replace(evaluation, scope=scope)
                if not evaluation.passed or score is None or outputs is None:
                    return evaluation
                return _with_profile(evaluation, request, remote, score, outputs)
        except Refused as error:
            return Evaluation(error.status, error.message, len(verdicts), len(todo))
        except ChildEnded as error:
            ended = error.ended
            return Evaluation(
                ended.status, ended.message, len(verdicts), len(todo), signal=ended.signal, stderr=ended.stderr
            )
        except ZygoteLost as error:
            self.close()
            return Evaluation(Status.LOST, str(error), len(verdicts), len(todo))

    def _diagnosis(self, request: Request, task: Task, failure: Verdict) -> str:
        """Diagnose in a second child; the verdict of the first one does not change."""
        try:
            with self.zygote.fork(self.limits, request.source.digest, keep=False) as child:
                return Remote(child, request, task).diagnosis(failure.workload)
        except (Refused, ChildEnded, ZygoteLost) as error:
            return f"not diagnosed: {error}"


def _task(request: Request) -> Task:
    """Return the task of a request; raise UsageError for an unknown task or GPU, before a child is forked."""
    find_chip(request.chip)
    return find_task(request.task)


def _supports(request: Request, remote: Remote) -> Supports:
    """Return what the candidate supports. A rung's table has more details than a file's lines."""
    if request.rung is None:
        return remote.supports
    if request.rung not in RUNGS:
        hint = did_you_mean(request.rung, RUNGS)
        raise UsageError(f"there is no rung {request.rung!r}{hint}; there are {', '.join(RUNGS)}")
    return find_candidate(request.rung, task=request.task, gpu=request.chip)[1]


def _plan(request: Request, supports: Supports) -> tuple[Workload, ...]:
    """Return the workloads in order, the one of the score last."""
    todo = plan(supports, request.choice, strict=True, within_limits=request.within_limits)
    score = _score_workload(request)
    if score is None or score in todo:
        return todo
    if not supports.takes_workload(score):
        raise Refused(Status.REJECTED, f"the kernel does not support the workload of the score, {score}")
    return (*todo, score)


def _score_workload(request: Request) -> Workload | None:
    score = request.score
    if score is None:
        return None
    try:
        shape = shape_of(score.shape)
    except ContractError as error:
        raise UsageError(f"the shape of the score: {error}") from error
    return Workload(shape, score.dtype, score.mask, score.regime, score.seed, score.encoding)


def _with_profile(
    passed: Evaluation, request: Request, remote: Remote, score: Workload, outputs: Outputs
) -> Evaluation:
    """Add the score if the profiled run has the bits of the judged one and its estimate is not below the bound."""
    counted = remote.count(score)
    if not counted.launches:
        note = f"{passed.message}; " if passed.message else ""
        return replace(passed, message=f"{note}no score: {counted.why}")
    if not same_bits(outputs, counted.outputs):
        return replace(passed, status=Status.NONDETERMINISTIC, message="the profiled run gave different bits")
    shape = score.shape
    sizes = {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
    profile = Profile(request.chip, request.clock_ghz, sizes, counted.launches)
    if not 0 < profile.lb_warm <= profile.est_high:
        message = f"an estimate of {profile.est_high:.0f} cycles is below the bound of {profile.lb_warm}"
        return replace(passed, status=Status.REJECTED, message=message)
    return replace(passed, profile=profile)
