"""Adds to a diagnosis what small edits of the kernel do: lines where one repairs it, and a change of the source.

Edits of the -G build, which are fast, take turns with those of the source: what the compiler computes of constants, and
the order of statements, is in no instruction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from weft.attention.shapes import Shape
from weft.core.records import inlining_chain
from weft.core.status import Status
from weft.engines.kernel_file import KernelFile
from weft.judge.select import Supports
from weft.repair.repair import Found, Repair, find_repairs
from weft.repair.source_fix import Attempt, JudgeAll, Known, SourceFix, find_source_fix
from weft.repair.source_trials import added_barriers, further_edits, likely_edits, passes
from weft.repair.triton_repair import find_triton_repairs
from weft.tasks.task import Problem, Workload

from .conclusion import cure_place_of, place_of
from .origins import slice_lines
from .records import Case, Diagnosis
from .spelling import own_place

WIDER = Shape("wider", 2, 4, 2, 37, 93, 64)
"""The sizes on which repairs are verified, with the D of the smallest failing case."""
MOSTLY = 0.9
"""An edit of the -G build that corrects this share is written into the source, too: there it changes all copies that
the compiler made of the line.
"""
MOST_PARTLY = 3
"""Lines with the edits that correct most, whose small edits in the source are tested."""
LIKELY_SECONDS, WRITING_SECONDS, FURTHER_SECONDS = 10.0, 25.0, 20.0
"""CPU time for testing edits of likely lines in the source, for writing an edit of the -G build into the source, and
for all other edits of the source.
"""

Progress = Callable[[str], None]


def repaired(diagnosis: Diagnosis, supports: Supports, judge_all: JudgeAll, progress: Progress) -> Diagnosis:
    """Add the edits with which the shrunk workload, the one that failed first and a wider one pass, and the change
    of the source that also passes what `judge_all` judges.
    """
    case = diagnosis.case
    small = case.verdict.workload
    workloads = dict.fromkeys((small, case.first_verdict.workload, *_wider(small, supports)))
    tools = _tools_of(diagnosis)
    if not _is_order(diagnosis) and passes(case.candidate, case.task, (small,), tools):
        return diagnosis  # only all the checkers together reject it: nothing shows whether an edit repairs it
    attempt = Attempt(case.candidate, case.task, tuple(workloads), judge_all, tools)
    return _Search(diagnosis, attempt, progress).found()


@dataclass
class _Search:
    """The search for one diagnosis."""

    diagnosis: Diagnosis
    attempt: Attempt
    progress: Progress
    passing: list[Repair] = field(default_factory=list)
    """Edits of the source with which the failing workloads pass."""
    known: Known = field(default_factory=Known)

    @property
    def case(self) -> Case:
        return self.diagnosis.case

    @cached_property
    def kernel(self) -> KernelFile:
        """The kernel; without a run, as of one that does not end, it is not loaded yet."""
        return self.case.kernel or self.case.candidate.load(self.case.problem)

    def found(self) -> Diagnosis:
        if _is_order(self.diagnosis):
            self.progress("adding a barrier to the source")
            fix = self._written(_barriers(self.diagnosis, self.kernel), WRITING_SECONDS)
            return self.diagnosis if fix is None else replace(self.diagnosis, repairs=(fix.repair,), fix=fix)
        place, candidate = place_of(self.diagnosis), self.case.candidate
        calls = list(inlining_chain(place))
        around = [at.line + step for at in calls[:1] for step in (0, -1, 1)]
        named = [at.line for at in (*calls, *self.diagnosis.strayed)]
        indices = [*self.diagnosis.ran_only_here, *(at.line for at in self.diagnosis.origins)]
        depends = slice_lines(self.case, place)
        suspected = tuple(dict.fromkeys((*named, *indices, *depends)))
        likely = [*around, *named, *self.diagnosis.ran_only_here, *depends, *indices]
        batches = self._in_build(suspected)
        in_build, fix = next(batches, Found()), None
        if not in_build.whole:
            self.progress("trying edits of the source")
            fix = self._written(likely_edits(candidate, likely), LIKELY_SECONDS)
        if fix is None:
            in_build = (in_build, *batches)[-1]
        spelled, partly = (_in_source(each, self.kernel) for each in (in_build.whole, in_build.partly))
        if fix is None:
            self.progress("writing edits into the source")
            # An edit in a function that is called at a suspected line may have to be written there.
            at_calls = [replace(each, place=at) for each in spelled[:1] if not each.text for at in calls]
            mostly = [each for each in partly if each.corrected >= MOSTLY]
            fix = self._written([*spelled, *at_calls, *mostly], WRITING_SECONDS)
        if fix is None:
            near = [each.place.line + step for each in spelled for step in (0, -1, 1)]
            more = [*(each.place.line for each in partly[:MOST_PARTLY]), *likely, *suspected]
            edits = chain(likely_edits(candidate, near), further_edits(candidate, tuple(dict.fromkeys(more))))
            fix = self._written(edits, FURTHER_SECONDS)
        first = [fix.repair] if fix is not None else []
        whole = tuple(dict.fromkeys([*first, *spelled, *self.passing]))
        return replace(self.diagnosis, repairs=whole, fix=fix, partly=() if whole else partly)

    def _in_build(self, suspected: Sequence[int]) -> Iterator[Found]:
        """Yield what edits of the -G build, or of Triton's source, do. None are tested if the kernel does not end, as
        every edit would run until the limit of a launch.
        """
        case = self.case
        repair = find_triton_repairs if case.candidate.kernel.source.is_triton else find_repairs
        problems: Mapping[Workload, Problem] = {each: case.task.draw(each) for each in self.attempt.workloads}
        if case.verdict.status is not Status.TIMEOUT:
            yield from repair(case.candidate, case.task, tuple(problems.values()), suspected, self.progress)

    def _written(self, repairs: Iterable[Repair], seconds: float) -> SourceFix | None:
        tried = find_source_fix(self.attempt, repairs, self.known, seconds)
        self.passing += tried.passing
        return tried.fix


def _is_order(diagnosis: Diagnosis) -> bool:
    """Return whether a barrier is missing: a checker found the lines, and no edit of one instruction repairs that."""
    return bool(diagnosis.signatures) and diagnosis.signatures[0].name == "missing_barrier"


def _tools_of(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the optional checkers whose findings reject the kernel."""
    kinds = {cause.code[0] for cause in diagnosis.causes}
    return tuple(tool for kind, tool in (("I", "initcheck"), ("R", "racecheck")) if kind in kinds)


def _barriers(diagnosis: Diagnosis, kernel: KernelFile) -> Iterator[Repair]:
    """Yield the source with a barrier at the place of the cure, and behind the accesses that race."""
    races = [cause for cause in diagnosis.causes if cause.code.startswith("R")]
    places = [cure_place_of(diagnosis), *(at for race in races for at in (race.other, race.place))]
    own = (own_place(at, kernel) for place in places for at in list(inlining_chain(place))[-1:])
    of_warp = all(race.warp == race.other_warp for race in races)
    for line in dict.fromkeys(at.line for at in own if at is not None):
        yield from added_barriers(diagnosis.case.candidate, line, of_warp=of_warp)


def _in_source(repairs: Sequence[Repair], kernel: KernelFile) -> tuple[Repair, ...]:
    """Return the repairs with their places as the user's file spells them."""
    return tuple(replace(each, place=own_place(each.place, kernel) or each.place) for each in repairs)


def _wider(small: Workload, supports: Supports) -> Iterator[Workload]:
    """Yield a workload with several batches, heads, groups and tiles for the same build: fewer sizes hide mistakes."""
    shape = replace(WIDER, d=small.shape.d)
    for each in (shape, replace(shape, hkv=shape.hq)):
        workload = replace(small, shape=each)
        if supports.takes_workload(workload):
            yield workload
            return
