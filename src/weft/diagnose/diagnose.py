"""Diagnoses a kernel: finds a failing workload, shrinks it, records a run, and finds the first wrong stage.

candidate, supports = find_candidate("kernel.cu", task=None)
diagnosis = diagnose(candidate, supports)
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from weft.attention.dtypes import Array, rounded
from weft.attention.emulate import Algorithm, Emulated, emulate
from weft.attention.logits import PLAIN_LOGITS, Logits
from weft.attention.reference import Causal, default_scale
from weft.attention.shapes import SHAPES
from weft.attention.stages import PER_TILE
from weft.core.errors import UsageError, WeftError
from weft.core.status import Status
from weft.engines.kernel_file import KernelFile
from weft.engines.virtual import VirtualGPU
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy, check
from weft.judge.judging import LIMITS, Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.select import Choice, Supports, followed, nothing_selected, settled, workloads
from weft.judge.verdict import Verdict, warnings_of
from weft.tasks.attention_problem import AttentionProblem
from weft.tasks.declared import algorithms_of
from weft.tasks.task import Declared, Workload

from .backward_stages import with_backward_stages
from .compare import Compared, Mask, compare_stages, first_wrong, output_wrong
from .conclusion import place_of
from .coverage import Coverage
from .divergence import divergence_of, output_divergence
from .launches import judge_launches
from .locate import Packed, locate
from .origins import origins, with_functions
from .own_units import in_units_of_reference
from .owners import owner
from .partials import split_count, workspaces
from .recipe_stages import with_recipe_stages
from .records import Case, Diagnosis, is_harmless, name_of
from .repaired import repaired
from .shrink import same_failure
from .shrink import shrink as shrink_workload
from .signatures import SIGNATURES
from .signatures.lines import lost_load
from .spectra import lines_of_failure
from .strays import index_lines
from .taps import TAPPED, Key, Taps
from .tolerance import Tolerance
from .upstream import split_findings
from .worked import Worked

QUICK = Choice(seeds=(0,))
RAN = (Status.UNSAFE, Status.INCORRECT_NUMERICAL, Status.NONDETERMINISTIC, Status.PASSED)
"""Verdicts on kernels that produced an output."""
ALL_TOOLS: tuple[str, ...] = ("all",)
NEVER_ENDS = ("S301", "S302")
"""Deadlock and infinite loop: there is nothing to record."""

Progress = Callable[[str], None]


def _silent(what: str) -> None:
    """Ignores every event."""


def diagnose(
    candidate: Candidate,
    supports: Supports,
    choice: Choice = QUICK,
    *,
    shrink: bool = True,
    repair: bool = False,
    progress: Progress = _silent,
) -> Diagnosis:
    """Return the diagnosis of the first failing workload, shrunk; a kernel that passes all workloads is healthy.

    With `repair`, small edits are tested until the failing workloads pass.
    """
    start = time.monotonic()
    supports = settled(supports, choice)
    verdicts = _until_failure(candidate, supports, choice, progress, once=True)
    verdict = failed = verdicts[-1]
    ran = failed.status in RAN and _is_of_workload(failed)
    if shrink and ran and not failed.passed:
        progress(f"shrinking {failed.workload}")
        verdict = _shrunk(candidate, supports, verdicts)
    diagnosis = explain(Case(candidate, supports.task, supports.task.draw(verdict.workload), verdict, failed), progress)
    if _is_lost(diagnosis) and verdict is not failed:
        # The smallest sizes may take all iterations from a loop: then nothing shows what it does.
        whole = explain(Case(candidate, supports.task, supports.task.draw(failed.workload), failed, failed), progress)
        diagnosis = diagnosis if _is_lost(whole) else whole
    if ran and not verdict.passed:
        passed = [each.workload for each in verdicts if each.passed and not each.extra]
        lines = lines_of_failure(candidate, supports.task, failed.workload, passed)
        diagnosis = replace(diagnosis, ran_only_here=lines)
    if diagnosis.healthy:
        diagnosis = replace(diagnosis, other_findings=warnings_of(verdicts))
    diagnosis = replace(diagnosis, judged=len(verdicts), seconds=time.monotonic() - start)
    return with_repairs(diagnosis, supports, choice, progress) if repair else diagnosis


def with_repairs(
    diagnosis: Diagnosis, supports: Supports, choice: Choice = QUICK, progress: Progress = _silent
) -> Diagnosis:
    """Return a diagnosis with the small edits that make the failing workloads pass."""
    case, start = diagnosis.case, time.monotonic()
    supports, failed = settled(supports, choice), case.first_verdict
    if not _is_of_workload(failed) or case.verdict.passed or case.verdict.status not in (*RAN, Status.TIMEOUT):
        return diagnosis
    at_boundary = failed.workload.shape.name not in SHAPES

    def judge_all(changed: Candidate) -> tuple[Workload | None, int]:
        *_, last = judged = _until_failure(changed, supports, choice, progress, boundaries=at_boundary)
        return None if last.passed else last.workload, len(judged)

    found = repaired(diagnosis, supports, judge_all, progress)
    return replace(found, seconds=diagnosis.seconds + time.monotonic() - start)


def _is_of_workload(failed: Verdict) -> bool:
    """Return whether a run of the workload itself fails: what only the -G build or the index arithmetic of large sizes
    shows, no smaller run and no edit shows.
    """
    return not (failed.debug_build or failed.large_sizes)


def _is_lost(diagnosis: Diagnosis) -> bool:
    """Return whether values could not be followed, and nothing else names a line."""
    named = diagnosis.causes or any(signature.place is not None for signature in diagnosis.signatures)
    return diagnosis.case.lost is not None and diagnosis.case.lost_place is None and not named


def diagnose_workload(
    candidate: Candidate, supports: Supports, workload: Workload, *, progress: Progress = _silent
) -> Diagnosis:
    """Return the diagnosis of one workload, which is not shrunk."""
    start = time.monotonic()
    progress(f"judging {workload}")
    verdict = check(candidate, supports.task, workload)
    diagnosis = explain(Case(candidate, supports.task, supports.task.draw(workload), verdict, verdict), progress)
    return replace(diagnosis, seconds=time.monotonic() - start)


def explain(case: Case, progress: Progress = _silent) -> Diagnosis:
    """Return the diagnosis of a case with only a verdict: run it, record it, and conclude."""
    coverage: Coverage | None = None
    right: tuple[str, ...] = ()
    if case.verdict.status in RAN:
        progress(f"running {case.verdict.workload}")
        case = _with_run(case)
    never_ends = any(finding.code in NEVER_ENDS for finding in case.findings)
    if case.o is not None and not case.verdict.passed and _is_of_workload(case.verdict) and not never_ends:
        progress("following the CTA that writes the first wrong row")
        if case.staged is not None:
            case, coverage = _with_stages(case, case.staged)
        elif case.recipe is not None:
            case, coverage = with_recipe_stages(case, case.recipe)
        elif case.backward is not None:
            case, right = with_backward_stages(case, case.backward)
    if not case.verdict.passed:
        case = with_functions(case)
    causes, others = split_findings(case.findings, case.divergence, case.taps)
    if case.verdict.passed:
        others = warnings_of([case.verdict])
    progress("looking for known mistakes")
    # The output of a kernel that does not end is incomplete: what is wrong with it says nothing about the mistake.
    # Those that look at a stage know the stages of the forward pass.
    looked_at = replace(case, divergence=None) if case.backward is not None else case
    answers = [recognise(looked_at) for recognise in SIGNATURES] if not never_ends else []
    signatures = sorted((answer for answer in answers if answer), key=lambda answer: -answer.rank)
    seen = case.taps.observed if case.taps is not None else case.stages_seen
    stages = TAPPED if seen and case.taps is not None else case.task.stages
    not_observed = tuple(stage for stage in stages if stage not in seen)
    strayed = () if is_harmless(case) else index_lines(case, causes)
    diagnosis = Diagnosis(
        case,
        proven_right=coverage.proven_right() if coverage is not None else right,
        not_observed=not_observed,
        not_observed_because=_why_unseen(case, never_ends=never_ends) if not_observed else "",
        causes=causes,
        other_findings=others,
        signatures=tuple(signatures),
        strayed=strayed,
    )
    place = place_of(diagnosis)
    blamed = [at for at in diagnosis.strayed if at != place]
    return diagnosis if case.verdict.passed else replace(diagnosis, origins=origins(case, place, blamed))


def _why_unseen(case: Case, *, never_ends: bool) -> str:
    """Return why stages were not observed."""
    if case.not_recorded:
        return case.not_recorded
    if case.run is None:
        return f"the kernel produced no output ({case.verdict.status})"
    if never_ends:
        return "the kernel does not end, so there is no complete run to record"
    if case.verdict.passed:
        return "the kernel passed, so it was not recorded"
    if not _is_of_workload(case.verdict):
        return "the results of every workload are right, so none was recorded"
    if case.taps is None and not case.stages_seen:
        return f"this workload of {case.task.name} has no stages to compare with"
    if case.taps is not None and case.taps.cut_short:
        return "the recording reached its limit before the kernel ended"
    if case.lost is not None:
        return f"values could not be followed from {name_of(case.lost)} on"
    return "no value that comes from the inputs was used as one of these stages"


def _until_failure(
    candidate: Candidate,
    supports: Supports,
    choice: Choice,
    progress: Progress,
    *,
    once: bool = False,
    boundaries: bool = True,
) -> list[Verdict]:
    """Judge plain workloads of full tiles first: a failure there is independent of masks and ragged ends.

    With `once` also what is judged once if all passed, as by `weft check`: the -G build, and indices at large sizes.
    With `boundaries` also the sizes at which the kernel itself takes another way.
    """
    chosen = list(workloads(supports, choice))
    masks, regimes = (list(dict.fromkeys(getattr(each, axis) for each in chosen)) for axis in ("mask", "regime"))
    chosen.sort(key=lambda each: (regimes.index(each.regime), masks.index(each.mask), _is_ragged(each)))
    if not chosen:
        raise UsageError(f"nothing to diagnose: {candidate.path}: {nothing_selected(supports, choice)}")
    progress(f"judging {chosen[0]}")
    follow = followed(supports, choice) if boundaries else None
    policy = Policy(stop=True, debug_build=once, large_sizes=once, limits=LIMITS if follow is not None else ())
    judging = Judging(LocalRuns(candidate), supports.task, chosen, policy, follow=follow)
    verdicts: list[Verdict] = []
    for each in judging:
        note = each.verdict.passed and (each.verdict.debug_build or each.verdict.large_sizes)
        if not each.verdict.aside and not note:
            verdicts.append(each.verdict)
        if len(verdicts) < len(judging.todo):
            progress(f"judging {judging.todo[len(verdicts)]}")
    return verdicts


def _shrunk(candidate: Candidate, supports: Supports, verdicts: list[Verdict]) -> Verdict:
    """Return the verdict on the smallest workload that fails as the last one does. Following uninitialised values
    takes seconds: where only numbers or races fail, only these are judged until the workload is small.
    """
    failed = verdicts[-1]
    tools, start = ALL_TOOLS, failed
    if failed.status is Status.UNSAFE:
        for fewer in ((), ("racecheck",)):
            alone = check(candidate, supports.task, failed.workload, tools=fewer)
            if not alone.passed:
                tools, start = fewer, alone
                break
    verdict = shrink_workload(
        start,
        lambda workload: check(candidate, supports.task, workload, tools=tools),
        takes=supports.takes_workload,
        blocks=_blocks(candidate),
        partial_tiles=any(each.passed and _is_ragged(each.workload) for each in verdicts),
        masks=supports.masks,
    )
    if tools == ALL_TOOLS or verdict is start:
        return verdict if tools == ALL_TOOLS else failed
    whole = check(candidate, supports.task, verdict.workload)
    return whole if same_failure(whole, failed) else failed


def _is_ragged(workload: Workload) -> bool:
    return workload.shape.sq % 16 != 0 or workload.shape.skv % 16 != 0


def _blocks(candidate: Candidate) -> tuple[int, ...]:
    macros = candidate.declared.macros
    return tuple(int(macros[name]) for name in ("BLOCK_M", "BLOCK_N") if macros.get(name, "").isdigit())


def _with_run(case: Case) -> Case:
    """Add a run. Its findings are those of the verdict, whose run was watched; here they stop no launch."""
    kernel = case.candidate.load(case.problem)
    run, arrays = kernel.run(VirtualGPU(kernel.gpu), _copies(case.problem.arrays))
    run = replace(run, findings=case.verdict.findings)
    said = tuple(each for each in kernel.diagnostics(case.problem.arrays) if each.severity == "warning")
    return replace(case, kernel=kernel, run=run, arrays=arrays, compiler_says=said)


def _copies(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


def _with_stages(case: Case, problem: AttentionProblem) -> tuple[Case, Coverage | None]:
    """Add taps, the first divergence, and the judgement of each launch alone."""
    kernel = case.kernel
    assert kernel is not None
    allowed = declared_algorithms(case.candidate.declared_at(kernel, problem), problem, kernel, case.arrays)
    assert case.o is not None
    wrong, declared = _least_wrong(problem, allowed, case.o)
    case = replace(case, algorithm=declared)
    try:
        position = owner(kernel, problem, wrong) if wrong.any() else (0, 0)
        # One launch may read what other CTAs of another launch wrote.
        whole = len(kernel.launches) > 1
        packed = None if problem.is_dense else Packed(problem.workload.shape, problem.element_numbers)
        taps = locate(
            kernel,
            problem.arrays,
            declared,
            mask=problem.mask,
            position=position,
            whole=whole,
            packed=packed,
            capped=problem.logits.soft_cap is not None,
        )
    except WeftError as error:  # what cannot be recorded is not observed
        return _with_output(replace(case, not_recorded=str(error)), problem, kernel, wrong), None
    taps, algorithm, stages, compared = nearest(taps, problem, shown_algorithm(taps, problem, allowed))
    found = first_wrong(compared)
    coverage = Coverage(problem, algorithm, compared, found)
    case = replace(case, taps=taps, algorithm=algorithm, expected=stages)
    lost = coverage.lost_at()
    case = replace(case, lost=lost, made_right=coverage.right_makers(taps))
    if lost is not None:
        case = replace(case, lost_place=lost_load(case, lost))
    if found is None:
        return _with_output(case, problem, kernel, wrong), coverage
    worked = Worked(problem, algorithm, stages)
    case = replace(case, divergence=divergence_of(found, taps, kernel, worked))
    return _with_launches(case, problem, kernel), coverage


class Nearest(NamedTuple):
    """Observed stages next to those of the algorithm that they are nearest to."""

    taps: Taps
    """In the units of the reference."""
    algorithm: Algorithm
    expected: Mapping[Key, Array]
    compared: tuple[Compared, ...]


def nearest(taps: Taps, problem: AttentionProblem, algorithm: Algorithm) -> Nearest:
    """Return the observed stages next to the expected ones. m and l may start with the sinks, or take them in after all
    keys: what has fewer wrong elements is meant.
    """
    tried = []
    for each in (algorithm, *((replace(algorithm, sinks_first=True),) if problem.logits.sinks is not None else ())):
        stages = expected(each, problem.q, problem.k, problem.v, mask=problem.mask, logits=problem.logits)
        own = in_units_of_reference(taps, problem, stages)
        tried.append(Nearest(own, each, stages, compare_stages(problem, own, each, stages)))
    return min(tried, key=lambda each: sum(int(stage.wrong.sum()) for stage in each.compared))


def _with_output(case: Case, problem: AttentionProblem, kernel: KernelFile, wrong: Mask) -> Case:
    """Add the output as the first divergence, where no stage before it was observed to be wrong."""
    algorithm = case.algorithm
    assert algorithm is not None
    if wrong.any() and case.o is not None:
        emulated = problem.emulated(algorithm)
        stages = {**case.expected, ("o", None): emulated.o, ("lse", None): emulated.lse}
        worked = Worked(problem, algorithm, stages)
        tolerance = Tolerance(problem, algorithm, stages).of("o", None)
        case = replace(case, divergence=output_divergence(worked, wrong, case.o, emulated.o, tolerance))
    return _with_launches(case, problem, kernel)


def _with_launches(case: Case, problem: AttentionProblem, kernel: KernelFile) -> Case:
    assert case.algorithm is not None
    return replace(case, launches=judge_launches(kernel, problem, case.algorithm, case.arrays))


def _least_wrong(problem: AttentionProblem, allowed: tuple[Algorithm, ...], o: Array) -> tuple[Mask, Algorithm]:
    """Return the elements of O beyond tolerance, by the algorithm that the kernel is closest to, and that algorithm."""
    if o.shape != problem.workload.shape.q:
        return np.zeros(o.shape, bool), allowed[0]
    tried = [(output_wrong(problem, algorithm, o), algorithm) for algorithm in allowed]
    return min(tried, key=lambda each: int(each[0].sum()))


def declared_algorithms(
    declared: Declared, problem: AttentionProblem, kernel: KernelFile, arrays: Mapping[str, Array]
) -> tuple[Algorithm, ...]:
    """Return the algorithms the judge allows, with as many splits as the kernel's workspaces have.

    A kernel without a lever BLOCK_N is assumed to work key by key; its maxima will show if it does not. Where sequences
    have their own lengths, their parts do too: then nothing is split, and sums over some keys are not compared.
    """
    workload = problem.workload
    shown = algorithms_of(declared, workload.encoding, workload.dtype)
    sizes = dict(zip("bhsd", workload.shape.q, strict=True))
    parts = max((split_count(space, sizes) for space in workspaces(kernel, arrays)), default=1)
    if "BLOCK_N" not in declared.macros:
        shown = tuple(replace(algorithm, block_n=1) for algorithm in shown)
    return tuple(
        replace(algorithm, splits=max(parts, algorithm.splits) if problem.is_dense else 1) for algorithm in shown
    )


def shown_algorithm(taps: Taps, problem: AttentionProblem, allowed: Sequence[Algorithm]) -> Algorithm:
    """Return the allowed algorithm whose operands were observed; P is rounded as observed, or as declared."""
    nearest = min(allowed, key=lambda algorithm: _operand_error(taps, problem, algorithm.operand_dtype))
    chosen = replace(
        taps.algorithm, operand_dtype=nearest.operand_dtype, p_dtype=nearest.p_dtype, p_open=nearest.p_open
    )
    seen = [tap.values[tap.observed] for (stage, _), tap in taps.taps.items() if stage == "p"]
    if not chosen.p_open or not seen:
        return chosen
    p = np.concatenate(seen).astype(np.float32)
    is_short = np.array_equal(p, rounded(p, chosen.p_dtype), equal_nan=True)
    return replace(chosen, p_dtype=chosen.p_dtype if is_short else "f32", p_open=False)


def _operand_error(taps: Taps, problem: AttentionProblem, dtype: str) -> float:
    """Return the error over all observed elements of Q."""
    tap = taps.at("q")
    if tap is None:
        return 0.0
    wanted = rounded(problem.q.astype(np.float32), dtype).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return float(np.nansum(np.abs(tap.values - wanted)[tap.observed]))


def expected(
    algorithm: Algorithm,
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float | None = None,
    causal: Causal = None,
    mask: Array | None = None,
    logits: Logits = PLAIN_LOGITS,
) -> Mapping[Key, Array]:
    """Return every stage of the emulated algorithm on (dequantised) inputs."""
    emulated = emulate(algorithm, q, k, v, scale=scale, causal=causal, mask=mask, logits=logits, keep_stages=True)
    stages = stages_of(emulated, algorithm, scale=scale)
    if logits.plain:
        return stages
    # Scores are capped and have a bias: what they were before is not computed from them.
    before = emulate(algorithm, q, k, v, scale=scale, causal=causal, mask=mask, keep_stages=True)
    products = {key: x for key, x in stages_of(before, algorithm, scale=scale).items() if key[0] == "products"}
    return {**stages, **products}


def stages_of(emulated: Emulated, algorithm: Algorithm, *, scale: float | None = None) -> Mapping[Key, Array]:
    """Return the stages that an emulation kept; `products` are scores before the scale."""
    stages: dict[Key, Array] = {("q", None): emulated.q}
    factor = default_scale(emulated.q.shape[-1]) if scale is None else scale
    factor *= 1.0 if algorithm.exp_base == math.e else math.log2(math.e)
    for tile in emulated.tiles:
        for name in PER_TILE:
            stages[name, tile.index] = tile.stage(name)
        in_q = algorithm.scale_in == "q"
        stages["products", tile.index] = tile.scores if in_q else tile.scores / np.float32(factor)
    stages["o", None], stages["lse", None] = emulated.o, emulated.lse
    return stages
