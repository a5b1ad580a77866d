"""Judge, diagnose and profile a kernel → the data of its page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.core.chips import Chip
from weft.core.errors import UsageError, WeftError
from weft.core.status import Status
from weft.coverage.records import Coverage
from weft.diagnose.conclusion import sentence
from weft.diagnose.diagnose import diagnose
from weft.diagnose.records import Diagnosis
from weft.diagnose.shown import verify_command
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy
from weft.judge.judging import LIMITS, Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.select import Choice, Supports, followed, nothing_selected, plan
from weft.judge.shape_sizes import call_at
from weft.judge.verdict import Verdict, conclude
from weft.profile.kernel_profile import KernelProfile, profile_kernel
from weft.tasks.task import PLAIN, Workload

from .cost import cost_of
from .diagnosed import diagnosed_of
from .kernel_maps import maps_of
from .kernel_source import lines_in, source_view
from .records import ErrorMap, KernelReport, Named, WorkloadResult

LOOKED_INTO = (Status.UNSAFE, Status.INCORRECT_NUMERICAL, Status.NONDETERMINISTIC)

Progress = Callable[[str], None]


class NothingSelected(UsageError):
    """None of the requested workloads can be judged."""


@dataclass(frozen=True)
class ReportOptions:
    """The options of a page."""

    target: str
    candidate: Candidate
    supports: Supports
    choice: Choice
    chip: Chip
    profile_shape: str = ""
    """The shape for the cost; empty: the task's typical one."""
    command: str = ""
    """The command that writes the page again."""


def _silent(what: str) -> None:
    """Ignores progress."""


def kernel_report(asked: ReportOptions, progress: Progress = _silent) -> KernelReport:
    """Judge every workload, diagnose the first that fails, profile. The page shows what could not be done."""
    verdicts, coverage = _judge(asked, progress)
    wrong = [verdict for verdict in verdicts if not verdict.passed and not verdict.aside]
    worst = min(wrong, key=lambda verdict: _plainness(asked, verdict), default=None) or nearest(verdicts)
    diagnosis = None
    if worst.status in LOOKED_INTO and not worst.extra:
        progress(f"diagnosing {worst.workload}")
        diagnosis = diagnose(asked.candidate, asked.supports, _only(worst.workload), progress=progress)
    progress("drawing the error")
    maps, no_map = maps_of(asked.candidate, asked.supports.task, worst, diagnosis)
    progress(f"profiling for {asked.chip.title}")
    profile, no_cost = _profile(asked)
    found = diagnosed_of(diagnosis, lines_in(asked.candidate.path)) if diagnosis is not None else None
    concluded = conclude(verdicts, len(verdicts))
    return KernelReport(
        target=asked.target,
        status=str(concluded.status),
        message=concluded.message,
        passed=concluded.passed,
        sentence=_sentence(worst, diagnosis, verdicts),
        facts=tuple(_facts(asked, verdicts, worst, maps)),
        commands=tuple(_commands(asked, diagnosis)),
        results=tuple(result_of(verdict) for verdict in verdicts),
        source=source_view(asked.candidate.path, verdicts, diagnosis, profile, coverage),
        maps=maps,
        no_map=no_map,
        diagnosed=found,
        cost=cost_of(profile) if profile is not None else None,
        no_cost=no_cost,
    )


def _judge(asked: ReportOptions, progress: Progress) -> tuple[tuple[Verdict, ...], Coverage]:
    todo = plan(asked.supports, asked.choice)
    if not todo:
        raise NothingSelected(f"nothing selected: {asked.target}: {nothing_selected(asked.supports, asked.choice)}")
    found: list[Verdict] = []
    runs, follow = LocalRuns(asked.candidate), followed(asked.supports, asked.choice)
    judging = Judging(
        runs, asked.supports.task, todo, Policy(limits=LIMITS if follow is not None else ()), follow=follow
    )
    for judged in judging:
        found.append(judged.verdict)
        progress(f"judged {len(found)} of {len(judging.todo)}: {judged.verdict.label}")
    return tuple(found), judging.coverage


def _plainness(asked: ReportOptions, verdict: Verdict) -> tuple[int, ...]:
    """Return the sort key of failures: simple ones, without a mask and on whole tiles, first; unsupported last."""
    work, task = verdict.workload, asked.supports.task
    axes = task.workloads
    ragged = work.shape.sq % 16 != 0 or work.shape.skv % 16 != 0
    return (
        verdict.status is Status.UNSUPPORTED,
        verdict.extra,
        axes.regimes.index(work.regime),
        axes.masks.index(work.mask),
        ragged,
        work.seed,
    )


def nearest(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict that is closest to a limit."""
    judged = [verdict for verdict in verdicts if verdict.gates] or verdicts
    return max(judged, key=lambda verdict: max((gate.ratio for gate in verdict.gates), default=0.0))


def _only(work: Workload) -> Choice:
    return Choice((work.shape.name,), (work.regime,), (work.mask,), (work.dtype,), (work.encoding,), (work.seed,))


def _profile(asked: ReportOptions) -> tuple[KernelProfile | None, str]:
    """Return the profile, or the reason why there is none. Wrong numbers do not matter; findings do."""
    task = asked.supports.task
    try:
        kernel = asked.candidate.load_with(task.macros)
        call = call_at(kernel, asked.profile_shape or task.typical)
        found = profile_kernel(kernel, asked.chip, target=asked.target, arrays=call.arrays, sizes=call.sizes)
        return found, ""
    except WeftError as error:
        return None, str(error)


def _sentence(worst: Verdict, diagnosis: Diagnosis | None, verdicts: Sequence[Verdict]) -> str:
    if diagnosis is not None and not diagnosis.healthy:
        return sentence(diagnosis)
    if not worst.passed:
        return worst.message
    judged = sum(not verdict.extra for verdict in verdicts)
    return f"{judged} of {judged} workloads are correct, safe and deterministic"


def _facts(asked: ReportOptions, verdicts: Sequence[Verdict], worst: Verdict, maps: Sequence[ErrorMap]) -> list[Named]:
    judged = [verdict for verdict in verdicts if not verdict.extra]
    facts = [
        Named("workloads", f"{sum(v.passed for v in judged)} of {len(judged)} passed"),
        Named("task", asked.supports.task.name),
        Named("first failing" if not worst.passed else "closest to a limit", worst.label),
    ]
    gate = max(worst.gates, key=lambda each: (not each.passed, each.ratio), default=None)
    if gate is not None:
        relation = "≤" if gate.passed else ">"
        facts.append(Named(f"gate “{gate.gate}”", f"{gate.error:.3g} {relation} {gate.limit:.3g}"))
        facts.append(Named("worst block", str(gate.worst)))
    if worst.error is not None:
        facts.append(Named("worst error against float64", f"{worst.error.max:.3g}, bias {worst.error.bias:+.2g}"))
    elif maps:  # a kernel with findings is not compared with the gates; its numbers may still be wrong or right
        error = float(np.nanmax(maps[0].error))
        unit = " × its limit" if maps[0].relative else ""
        facts.append(Named("worst error", f"{error:,.3g}{unit}" if np.isfinite(error) else "NaN"))
    codes = dict.fromkeys(finding.code for verdict in verdicts for finding in verdict.findings)
    facts.append(Named("findings", ", ".join(codes) or "none"))
    for name in dict.fromkeys(name for verdict in verdicts for name in verdict.not_judged):
        facts.append(Named("not judged", f"{name}: the kernel has no such output"))
    for name in dict.fromkeys(name for verdict in verdicts for name in verdict.order_dependent):
        facts.append(
            Named("depends on the order of CTAs and warps", f"{name}, as declared; the gates pass in each order")
        )
    path = asked.candidate.path
    opened = [verdict.message.replace(str(path), path.name) for verdict in verdicts if verdict.aside]
    facts += [Named("not judged", message) for message in opened]
    return facts


def _commands(asked: ReportOptions, diagnosis: Diagnosis | None) -> list[Named]:
    found = [Named("this page", asked.command)] if asked.command else []
    if diagnosis is not None and not diagnosis.healthy:
        found.append(Named("the failing workload", verify_command(diagnosis)))
        work = diagnosis.case.first_verdict.workload
        encoding = "" if work.encoding == PLAIN else f" --encoding {work.encoding}"
        options = f"--shape {work.shape.name} --mask {work.mask} --regime {work.regime} --dtype {work.dtype}"
        task = f"--task {asked.supports.task.name}"
        found.append(
            Named("the diagnosis", f"weft diagnose {asked.target} {task} {options}{encoding} --seed {work.seed}")
        )
    return found


def result_of(verdict: Verdict) -> WorkloadResult:
    """Return a verdict's row of the page."""
    work = verdict.workload
    coded = "" if work.encoding == PLAIN else f"{work.encoding} → "
    once = " · -G" * verdict.debug_build + " · large sizes" * verdict.large_sizes
    row = f"{work.shape.name} · {coded}{work.dtype} · {work.mask}{once}"
    return WorkloadResult(row, work.regime, verdict.label, str(verdict.status), verdict.message, verdict.passed)
