"""Finds the line of a mistake in a Triton file by repairing it; see `triton_edits.py`."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from weft.core.errors import WeftError
from weft.core.records import Place
from weft.engines.bound_kernel import BoundKernel
from weft.engines.kernel_file import KernelFile
from weft.engines.launch import Launch
from weft.engines.launch_records import MapArgument, Struct
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.tasks.task import Problem, Task

from .attempt import Judge, NothingToRepair, Trial, cpu_seconds, launch_with, trials
from .repair import LEAST_CORRECTED, Found, Progress, Repair, likeliest_first, most_first, place_among, taking_turns
from .source_trials import Copy, copy_of
from .templates import Kind
from .triton_edits import TritonEdit, TritonText

BATCH = 80
"""Edits that are compiled into one text: each is a choice for every element of a tile."""
SMALL = 10
MOST_BATCHES = 6
MOST_SECONDS = 35.0
"""CPU time after which no further edit is tested."""
FEWEST = 5
"""So many edits are given up if they do not compile together."""


def find_triton_repairs(
    candidate: Candidate, task: Task, problems: Sequence[Problem], suspected: Sequence[int], progress: Progress
) -> Iterator[Found]:
    """Yield what the edits do that were tested so far, batch by batch, until some repair all problems; the first
    problem is the smallest.
    """
    partly: dict[TritonEdit, float] = {}

    def repair_of(each: TritonEdit, share: float = 1.0) -> Repair:
        return Repair(Place(str(candidate.path), each.line), each.words, each.kind, each.text, share)

    until = cpu_seconds() + MOST_SECONDS
    kernel = candidate.load(problems[0])
    text = TritonText(candidate.path.read_text(), _types(kernel))
    with copy_of(candidate) as copy:
        benches = [_Bench(candidate, task, problem, text, copy, until) for problem in problems]
        for number, batch in enumerate(_batches(text, suspected), 1):
            if cpu_seconds() > until or number > MOST_BATCHES:
                return
            progress(f"trying {len(batch)} edits ({number} of at most {MOST_BATCHES})")
            try:
                found = _repairing(benches, batch, partly)
            except NothingToRepair:
                return
            most = most_first([repair_of(each, share) for each, share in partly.items()], suspected)
            yield Found(tuple(likeliest_first([repair_of(each) for each in found], suspected)), most)
            if found:
                return


def _repairing(
    benches: Sequence["_Bench"], batch: Sequence[TritonEdit], partly: dict[TritonEdit, float]
) -> list[TritonEdit]:
    """Return the edits that repair all problems; add those that correct a part of the first to `partly`. A batch that
    does not compile is halved: the value of an edit may have a type or a shape that does not fit.
    """
    try:
        found = list(batch)
        for bench in benches:
            tried = bench.tried(batch, found)
            if bench is benches[0]:
                partly.update({edit: trial.corrected for edit, trial in tried if trial.corrected >= LEAST_CORRECTED})
            found = [edit for edit, trial in tried if trial.passed]
            if not found:
                break
        return found
    except NothingToRepair:
        raise
    except WeftError:
        if len(batch) <= FEWEST or cpu_seconds() > benches[0].until:
            return []
        half = len(batch) // 2
        return [*_repairing(benches, batch[:half], partly), *_repairing(benches, batch[half:], partly)]


@dataclass(frozen=True)
class _Bench:
    """A candidate, ready to run one problem with edits."""

    candidate: Candidate
    task: Task
    problem: Problem
    text: TritonText
    copy: Copy
    until: float

    def tried(self, edits: Sequence[TritonEdit], among: Collection[TritonEdit]) -> list[tuple[TritonEdit, Trial]]:
        """Return those that change a result, with what they do; none if the smallest passes without an edit."""
        changed = self.text.changed(edits)
        plain = self.candidate.load(self.problem)
        kernel = self.copy.with_text(self.text.switched(edits)).load(self.problem)
        arrays = {name: array.copy() for name, array in self.problem.arrays.items()}
        bound, binaries = kernel.bind(arrays), plain.binaries(self.problem.arrays)
        is_changed = [launch.entry.partition("<")[0].strip() in changed for launch in bound.launches]
        if not any(is_changed):
            return []
        first = is_changed.index(True)
        gpu = VirtualGPU(kernel.gpu, threads=1)

        def launch_of(each: Launch, number: int, *, edited: bool) -> Launch:
            if edited:
                return launch_with(each, each.binary, (number, *each.args[1:]))
            return launch_with(each, binaries[each.entry])

        def launches(number: int) -> tuple[Launch, ...]:
            both = zip(bound.launches, is_changed, strict=True)
            return tuple(launch_of(each, number, edited=edited) for each, edited in both)

        def chosen(number: int) -> BoundKernel:
            gpu.reset()
            return replace(bound, launches=launches(number)[first:], complete=False)

        before = replace(bound, launches=launches(0)[:first], complete=False)
        numbers = [number for number, edit in enumerate(edits, 1) if edit in among]
        numbers = [0, *numbers] if len(among) == len(edits) else numbers

        judge = Judge(self.candidate, self.task, self.problem, plain)
        return [(edits[each.number - 1], each) for each in trials(before, chosen, numbers, gpu, judge, self.until)]


def _batches(text: TritonText, suspected: Sequence[int]) -> Iterator[list[TritonEdit]]:
    """Yield batches of edits of one function: every second of the most suspected, the others of the rest in turn."""
    later = {Kind.TERM: 4, Kind.VALUE: 8, Kind.OPERAND: 12}
    by_function: dict[str, list[TritonEdit]] = {}
    for edit in sorted(text.edits(), key=lambda edit: place_among(edit.line, suspected) + later.get(edit.kind, 0)):
        by_function.setdefault(edit.function, []).append(edit)
    # Functions of a few edits come last: they cost a compilation as well.
    functions = sorted(by_function.values(), key=lambda own: len(own) < SMALL)
    cut = [[own[at : at + BATCH] for at in range(0, len(own), BATCH)] for own in functions]
    return taking_turns(cut[0], cut[1:]) if cut else iter(())


def _types(kernel: KernelFile) -> dict[str, list[str]]:
    """Return kernel → a type for each argument of its launch line, `*` before that of an array."""
    arrays = {line.name: f"*{line.element}" for line in kernel.lines.arrays}
    scalars = {line.name: line.element for line in kernel.lines.scalars}
    found: dict[str, list[str]] = {}
    for launch in kernel.launches:
        name = "".join(piece for piece in launch.callee if isinstance(piece, str)).partition("<")[0].strip()
        kinds = []
        for each in launch.arguments:
            given = each.name if not isinstance(each, Struct | MapArgument) else ""
            kinds.append(arrays.get(given) or scalars.get(given) or "size")
        found[name] = kinds
    return found
