"""Evaluate candidates, each in a child of its own: what one breaks, hangs or eats costs one verdict.

with Supervisor() as supervisor:
    evaluation = supervisor.evaluate(Request(Source(text)))
"""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from types import TracebackType
from typing import Self

from weft.attention.shapes import SHAPES
from weft.core.chips import chip as find_chip
from weft.core.errors import UsageError
from weft.judge.select import Supports, find_candidate, smallest, workloads
from weft.judge.verdict import Verdict
from weft.kernels.ladder import RUNGS
from weft.tasks.registry import find_task
from weft.tasks.task import Axes, Outputs, Task, Workload

from .children import ChildEnded, Zygote, ZygoteLost
from .counted import Profile
from .isolation import Isolation
from .plain import verdict_record
from .records import Canonical, Evaluation, Limits, Outcome, Request
from .remote import NoAnswer, Remote, same_bits

Progress = Callable[[int, int], None]
Seen = Callable[[Verdict, Outputs], None]
"""Is shown each verdict, and what the run left behind."""


def _silent(judged: int, planned: int) -> None:
    """Tells nobody."""


def _unseen(verdict: Verdict, outputs: Outputs) -> None:
    """Looks at nothing."""


class Supervisor:
    """A fork server and the judge before it: one evaluation at a time. For several at once have several of these."""

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
        """From another thread: end the evaluation that runs, if one does. It is LOST."""
        if (zygote := self._zygote) is not None:
            zygote.kill()

    @property
    def zygote(self) -> Zygote:
        """The fork server, started when it is first needed and again if it is gone."""
        if self._zygote is not None and not self._zygote.alive:
            self.close()
        if self._zygote is None:
            self._zygote = Zygote()
        return self._zygote

    @property
    def isolation(self) -> Isolation:
        """How well its children are shut in: tried out when the fork server started. Raises ZygoteLost."""
        return self.zygote.isolation

    def canonical_ptx(self, request: Request) -> Canonical:
        """What a candidate's code is known by, before it is evaluated: compiled in a child for the score workload."""
        task, arch = find_task(request.task), _arch(request)
        try:
            self.isolation.require(request.isolation)
            with self.zygote.fork(self.limits, request.source.digest) as child:
                remote = Remote(child, request, task, arch)
                todo = _plan(request, task, _supports(request, remote, arch))
                score = _score_workload(request)
                return Canonical(Outcome.PASSED, remote.canonical(score or smallest(todo)))
        except NoAnswer as error:
            return Canonical(error.outcome, message=error.message)
        except ChildEnded as error:
            return Canonical(error.ended.outcome, message=error.ended.message)
        except ZygoteLost as error:
            self.close()
            return Canonical(Outcome.LOST, message=str(error))

    def evaluate(self, request: Request, *, progress: Progress = _silent, seen: Seen = _unseen) -> Evaluation:
        """Judge until the first failure, then count the score workload. Only a wrong request raises, or NotIsolated.

        `progress` is told how many workloads are judged, of how many: the place for a heartbeat.
        """
        start = time.perf_counter()
        task, arch = find_task(request.task), _arch(request)
        try:
            held = self.isolation
        except ZygoteLost as error:
            return Evaluation(Outcome.LOST, str(error))
        held.require(request.isolation)
        found = replace(self._evaluate(request, task, arch, progress, seen), isolation=held.level)
        if request.diagnose and found.failure is not None:
            found = replace(found, diagnosis=self._diagnosis(request, task, arch, found.failure))
        return replace(found, seconds=time.perf_counter() - start)

    def _evaluate(self, request: Request, task: Task, arch: str, progress: Progress, seen: Seen) -> Evaluation:
        judged = 0
        todo: tuple[Workload, ...] = ()
        outputs: Outputs | None = None
        score = _score_workload(request)
        try:
            with self.zygote.fork(self.limits, request.source.digest) as child:
                remote = Remote(child, request, task, arch)
                todo = _plan(request, task, _supports(request, remote, arch))
                for workload in todo:
                    verdict, left = remote.judge(workload)
                    judged += 1
                    progress(judged, len(todo))
                    seen(verdict, left)
                    if not verdict.passed:
                        return _failed(verdict, judged, len(todo))
                    if workload == score:
                        outputs = left
                in_debug_build = remote.judge_debug_build(smallest(todo)) if request.debug_build else None
                if in_debug_build is not None:
                    return _failed(in_debug_build, judged, len(todo))
                passed = Evaluation(Outcome.PASSED, "", judged, len(todo))
                if score is None or outputs is None:
                    return passed
                return _with_profile(passed, request, remote, score, outputs)
        except NoAnswer as error:
            return Evaluation(error.outcome, error.message, judged, len(todo))
        except ChildEnded as error:
            ended = error.ended
            return Evaluation(ended.outcome, ended.message, judged, len(todo), signal=ended.signal, stderr=ended.stderr)
        except ZygoteLost as error:
            self.close()
            return Evaluation(Outcome.LOST, str(error), judged, len(todo))

    def _diagnosis(self, request: Request, task: Task, arch: str, failure: Verdict) -> str:
        """By a second child: the first one's verdict stands already."""
        try:
            with self.zygote.fork(self.limits, request.source.digest, keep=False) as child:
                return Remote(child, request, task, arch).diagnosis(failure.workload)
        except (NoAnswer, ChildEnded, ZygoteLost) as error:
            return f"not diagnosed: {error}"


def _arch(request: Request) -> str:
    return find_chip(request.chip).architecture.target


def _supports(request: Request, remote: Remote, arch: str) -> Supports:
    """A rung's table says more than a file's lines can."""
    if request.rung is None:
        return remote.supports
    if request.rung not in RUNGS:
        raise UsageError(f"no rung is called {request.rung!r}; there are {', '.join(RUNGS)}")
    return find_candidate(request.rung, task=request.task, arch=arch)[1]


def _plan(request: Request, task: Task, supports: Supports) -> tuple[Workload, ...]:
    """The workloads in order, the score's last. A named axis that the candidate lacks is refused, never left out."""
    choice = request.choice
    for axis in fields(Axes):
        wanted, has = getattr(choice, axis.name), getattr(supports, axis.name, None)
        missing = [name for name in wanted if has is not None and name not in has]
        if missing:
            raise NoAnswer(Outcome.REJECTED, f"it does not support the {axis.name} {', '.join(missing)}")
    todo = list(workloads(supports, choice))
    lacking = [name for name in choice.shapes if name not in {workload.shape.name for workload in todo}]
    if lacking:
        raise NoAnswer(Outcome.REJECTED, f"it does not take the shapes {', '.join(lacking)}")
    score = _score_workload(request)
    if score is not None and score not in todo:
        fits = (
            score.dtype in supports.dtypes
            and score.mask in supports.masks
            and score.encoding in supports.encodings
            and supports.takes(score.shape)
        )
        if not fits:
            raise NoAnswer(Outcome.REJECTED, f"it does not support the workload of the score, {score}")
        todo.append(score)
    if not todo:
        raise NoAnswer(Outcome.REJECTED, f"it supports none of {task.name}'s workloads that were asked for")
    return tuple(todo)


def _score_workload(request: Request) -> Workload | None:
    score = request.score
    if score is None:
        return None
    if score.shape not in SHAPES:
        raise UsageError(f"no shape is called {score.shape!r}; there are {', '.join(SHAPES)}")
    return Workload(SHAPES[score.shape], score.dtype, score.mask, score.regime, score.seed, score.encoding)


def _failed(verdict: Verdict, judged: int, planned: int) -> Evaluation:
    return Evaluation(
        Outcome.of(verdict.status),
        verdict.message,
        judged,
        planned,
        failure=verdict,
        failure_record=verdict_record(verdict),
    )


def _with_profile(
    passed: Evaluation, request: Request, remote: Remote, score: Workload, outputs: Outputs
) -> Evaluation:
    """The score counts only for the run that was judged: the same bits, and no estimate below its bound."""
    counted = remote.count(score)
    if not counted.launches:
        return replace(passed, message=f"no score: {counted.why}")
    if not same_bits(outputs, counted.outputs):
        return replace(passed, outcome=Outcome.NONDETERMINISTIC, message="the run that was counted left other bits")
    shape = score.shape
    sizes = {"B": shape.b, "HQ": shape.hq, "HKV": shape.hkv, "SQ": shape.sq, "SKV": shape.skv, "D": shape.d}
    profile = Profile(request.chip, request.clock_ghz, sizes, counted.launches)
    if not 0 < profile.lb_warm <= profile.est_high:
        message = f"an estimate of {profile.est_high:.0f} cycles below the bound of {profile.lb_warm}: not believable"
        return replace(passed, outcome=Outcome.REJECTED, message=message)
    return replace(passed, profile=profile)
