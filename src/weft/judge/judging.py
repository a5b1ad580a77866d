"""Judges all workloads of a candidate: in their order, or several at once in copies of this process."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Protocol, TypeVar

from weft.attention.size_roles import size_role
from weft.core.status import Status
from weft.coverage.records import Boundary, Coverage
from weft.tasks.task import Task, Workload

from .ahead import Ahead, Elsewhere
from .ask import Ask, OfDebugBuild, OfLargeSizes, OfWorkload
from .follow import workloads_at
from .judge import Judged, Policy, smallest
from .large_sizes import one_per_build
from .local_runs import LocalRuns
from .look import look_for
from .runs import Runs
from .select import Supports, first_pass
from .verdict import Verdict

LIMITS = ("types", "dimensions")
"""Values of `Policy.limits`. Strict judging allows only the first: macros do not state which types a kernel has."""

_ASSERTED = "assertion failed: "

Found = TypeVar("Found", Judged, Elsewhere)
FoundCo = TypeVar("FoundCo", Judged, Elsewhere, covariant=True)


class Judges(Protocol[FoundCo]):
    """Where it is judged: this process, or others."""

    def __call__(self, ask: Ask, following: Iterable[Ask]) -> FoundCo | None:
        """Return what was found; what follows may be judged at the same time."""
        ...


class Judging:
    """Judges every workload of a candidate in order; then, if all passed, what is judged once: indices at large sizes,
    and uninitialised reads in the -G build.

    With `follow`, workloads at the sizes where the kernel takes another branch are judged too, after each shape, type
    and mask of the selection has run. On the smallest workload the kernel is called a second time with other inputs:
    see `judge_second_call`. Iterate over it, then call `coverage`.
    """

    def __init__(
        self,
        runs: Runs,
        task: Task,
        todo: Sequence[Workload],
        policy: Policy = Policy(),  # noqa: B008  (frozen)
        *,
        follow: Supports | None = None,
    ) -> None:
        self.runs, self.task, self.policy, self.follow = runs, task, policy, follow
        self.todo = list(todo)
        """In order; it grows when the kernel is followed."""
        self.boundaries: tuple[Boundary, ...] = ()
        self._called_twice = smallest(self.todo) if self.todo else None

    def __iter__(self) -> Iterator[Judged]:
        return self._all(lambda ask, following: ask(self.runs, self.task))

    def verdicts(self, jobs: int) -> Iterator[Verdict]:
        """Judge in this many processes: the same verdicts in the same order."""
        # OpenMP, which torch uses, does not work in a forked process.
        if jobs == 1 or not isinstance(self.runs, LocalRuns) or "torch" in sys.modules:
            yield from (judged.verdict for judged in self)
            return
        with Ahead(self.runs, self.task, jobs) as ahead:
            yield from (found.verdict for found in self._all(ahead))

    def _asks(self, done: int, *, last: bool) -> Iterator[Ask]:
        """Yield the next workload, then what else is left to judge if everything passes, in the order to start it.

        `last`: with what is judged last. It takes longest and depends on no workload, so it is not started last.
        """
        works = self.todo[done:]
        asks = (OfWorkload(work, replace(self.policy, second_call=work == self._called_twice)) for work in works)
        yield next(asks)
        yield from self._last_asks() if last else ()
        yield from asks

    def _last_asks(self) -> Iterator[Ask]:
        """Yield what is judged once, at the end."""
        if self.policy.large_sizes:
            yield from (OfLargeSizes(work, self.policy.strict) for work in one_per_build(self.todo))
        if self.policy.checks_debug_build:
            yield OfDebugBuild(smallest(self.todo), self.policy.strict)

    def _all(self, judges: Judges[Found]) -> Iterator[Found]:
        first = first_pass(self.todo)
        green, done = bool(self.todo), 0
        built: set[tuple[str, ...]] = set()
        followed = False
        while done < len(self.todo):
            asks = self._asks(done, last=green and done >= first)
            found = judges(next(asks), asks)
            assert found is not None  # a workload always has a verdict
            done += 1
            if found.verdict.passed:
                built.add(_build(found.verdict.workload))
            elif self._is_limit(found.verdict, built):
                found = replace(found, verdict=self._limited(found.verdict))
                done -= 1
                first = first_pass(self.todo)
            green = green and (found.verdict.passed or found.verdict.limit)
            if done >= first and green and self.follow is not None and not followed:
                followed = True
                self._follow(self.follow, done)
            yield found
            if self.policy.stop and not green:
                return
        last = tuple(self._last_asks()) if green else ()
        for number, ask in enumerate(last):
            found_once = judges(ask, last[number + 1 :])
            if found_once is not None:
                yield found_once
                return

    def _is_limit(self, verdict: Verdict, built: Set[tuple[str, ...]]) -> bool:
        """Whether the kernel itself refuses a head dimension or a type: `static_assert(D % 16 == 0)`, `assert(D < 9)`.

        It must have run with the same macros apart from the type, so that a broken build is not a limit. Wrong numbers
        are never a limit.
        """
        work, first = verdict.workload, self.todo[0]
        refused = verdict.status in (Status.COMPILE_ERROR, Status.RESOURCE_ERROR, Status.LAUNCH_ERROR)
        other_d = work.shape.d != first.shape.d and _build(work) in built
        other_type = work.dtype != first.dtype and _build(replace(work, dtype=first.dtype)) in built
        allowed = self.policy.limits
        by_dimension = "dimensions" in allowed and other_d
        return (by_dimension and _asserts_dimension(verdict)) or (
            refused and (by_dimension or ("types" in allowed and other_type))
        )

    def _limited(self, verdict: Verdict) -> Verdict:
        """Return the verdict as a note, and drop the build's other workloads of that shape."""
        refused = verdict.workload
        self.todo = [work for work in self.todo if work.shape != refused.shape or _build(work) != _build(refused)]
        kind = f"D = {refused.shape.d}" if refused.dtype == self.todo[0].dtype else refused.dtype
        message = f"the kernel refuses {kind} at {refused.shape.name} ({verdict.status}: {verdict.message})"
        return replace(verdict, limit=True, message=message)

    def _follow(self, supports: Supports, done: int) -> None:
        """Put workloads at the kernel's own boundaries next."""
        like = [work for work in self.todo[:done] if work.dtype == self.todo[0].dtype]
        like = [work for work in like if work.shape.d == like[0].shape.d]
        found = self.runs.look(look_for(self.task, like[0], supports.limits))
        followed = workloads_at(found, supports, like, self.runs.coverage())
        self.boundaries = followed.boundaries
        known = set(self.todo)
        self.todo[done:done] = [work for work in followed.workloads if work not in known]

    @property
    def coverage(self) -> Coverage:
        """Return which code the runs executed, and the sizes at which the kernel takes another branch."""
        return replace(self.runs.coverage(), boundaries=self.boundaries)


def _asserts_dimension(verdict: Verdict) -> bool:
    """Whether all that was found is an assertion about the head dimension alone."""
    said = [finding.message.removeprefix(_ASSERTED) for finding in verdict.findings if finding.code == "X402"]
    words = [re.findall(r"[A-Za-z_]\w*", expression) for expression in said]
    about_d = all(names and all(size_role(name) == "D" for name in names) for names in words)
    return verdict.status is Status.UNSAFE and about_d and len(said) == len(verdict.findings) > 0


def _build(workload: Workload) -> tuple[str, ...]:
    """Return the axes of a workload that macros choose."""
    return workload.dtype, workload.mask, workload.encoding


def judge_all(
    runs: Runs,
    task: Task,
    todo: Sequence[Workload],
    policy: Policy = Policy(),  # noqa: B008  (frozen)
) -> Iterator[Judged]:
    """Judge these workloads; then, if all passed, what is judged once: indices at large sizes, and the -G build."""
    return iter(Judging(runs, task, todo, policy))
