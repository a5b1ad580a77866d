"""`weft check`: compare a kernel with the reference over shapes, types, masks, regimes and seeds; give a verdict."""

import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from weft.core import knobs
from weft.core.chips import choose_gpu
from weft.core.errors import UsageError
from weft.core.finding_text import sarif
from weft.coverage.records import Coverage
from weft.coverage.text import lcov, listing, merge, summary
from weft.engines.kernel_file import MAX_STEPS
from weft.judge.candidate import Candidate
from weft.judge.judge import Policy
from weft.judge.judging import LIMITS, Judging
from weft.judge.local_runs import LocalRuns
from weft.judge.scope import Scope, hint_for, scope_of
from weft.judge.select import (
    HIDDEN_EVERY,
    Choice,
    Supports,
    find_candidate,
    followed,
    hide_seeds,
    plan,
    refused_shapes,
    settled,
)
from weft.judge.shape_errors import OWN_SIZES, row_of
from weft.judge.verdict import Verdict, conclude
from weft.judge.verdict_json import check_record
from weft.kernels.ladder import RUNGS
from weft.probes.tools import watch_for
from weft.tasks.registry import TASKS
from weft.tasks.task import Task, Workload

from .check_errors import show_errors
from .check_findings import annotations, distinct, distinct_suppressed, exit_code, last_line
from .check_folder import FolderOptions, Shown, check_folder
from .findings_output import Format, text_lines
from .launch_draft import draft_shown, say_host_code
from .options import ARCH_HELP, COMPILER_HELP, GPU_HELP, STRICT_HELP, Compiler
from .tables import print_table
from .terminal import bar, paint, print_line, waiting

SHOWN = 3
"""Number of failing workloads that are printed in full."""
SEEDS = 3


def check(
    targets: Annotated[list[str], typer.Argument(help="Rungs, files with launch lines, or one task folder.")],
    task: Annotated[
        str | None, typer.Option(help=f"Task of a file: {', '.join(TASKS)} or a Python file (default: sdpa).")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("-I", metavar="DIR", help="Search this directory for includes.")
    ] = None,
    compiler: Annotated[Compiler, typer.Option(help=COMPILER_HELP)] = Compiler.NVRTC,
    launch: Annotated[
        Path | None, typer.Option(help="Launch lines of a PTX file (default: the .launch file next to it).")
    ] = None,
    shapes: Annotated[str, typer.Option(help="Named shapes, with commas, or all (default: a quick choice).")] = "",
    regimes: Annotated[str, typer.Option(help="Input regimes, with commas, or all (default: a quick choice).")] = "",
    masks: Annotated[
        str, typer.Option(help="Masks: none, top_left, bottom_right; causal means both (default: the kernel's).")
    ] = "",
    dtypes: Annotated[str, typer.Option(help="Types: f16 or half, bf16, f32 (default: the kernel's first).")] = "",
    encodings: Annotated[
        str, typer.Option(help="Encodings of 8-bit inputs: sim_fp8, e4m3 (default: the kernel's).")
    ] = "",
    seeds: Annotated[
        int | None, typer.Option(min=1, help=f"Seeds per workload (default {SEEDS}), or a folder's trials (default 1).")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Judge only this seed, instead of --seeds.")] = None,
    hidden: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"Extra random seeds chosen at run time (default: one, in every {HIDDEN_EVERY}th workload; 0: none).",
        ),
    ] = None,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    max_steps: Annotated[int, typer.Option(min=1, help="Limit of loop iterations per host thread.")] = MAX_STEPS,
    tool: Annotated[str, typer.Option(metavar="T,T", help="Optional checkers: initcheck, racecheck, all.")] = "all",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Judge in this many processes at once (default: all cores).")
    ] = None,
    max_findings: Annotated[int, typer.Option(min=0, help="Findings printed per workload; all are counted.")] = 20,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT_HELP)] = False,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; same as --format json.")] = False,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Print the source with how often each line ran.")
    ] = False,
    lcov_file: Annotated[
        Path | None, typer.Option("--lcov", metavar="FILE", help="Write coverage in lcov's format.")
    ] = None,
    sarif_file: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF to a file, too.")
    ] = None,
) -> int:
    """Judge kernels: memory accesses, races, results compared with the reference, determinism.

    Exit codes: 0 all passed, 1 something failed, 2 usage error, 3 could not be judged, 5 nothing selected.
    """
    tools = tuple(tool.split(","))
    watch_for(tools)  # refuse a wrong name before anything runs
    form = Format.JSON if as_json else form
    if any(Path(target).is_dir() for target in targets):
        chosen = {
            "--task": task,
            "--launch": launch,
            "--shapes": shapes,
            "--regimes": regimes,
            "--masks": masks,
            "--dtypes": dtypes,
            "--encodings": encodings,
            "--seed": seed is not None,
            "--hidden": hidden,
            "--sarif": sarif_file,
        }
        return _check_folder(
            targets,
            chosen,
            FolderOptions(
                trials=seeds,
                gpu=choose_gpu(gpu, arch) if gpu or arch else "",
                include_dirs=tuple(include or ()),
                compiler=compiler.value,
                max_steps=max_steps,
                tools=tools,
                strict=strict,
            ),
            Shown(form, max_findings),
        )
    if launch is not None and targets[1:]:
        raise UsageError("--launch is for one PTX file; give each its own .launch file")
    found = {}
    for target in targets:
        with draft_shown(target), waiting(f"reading {target}", long=True):
            found[target] = find_candidate(
                target,
                task=task,
                gpu=gpu,
                arch=arch,
                launch=launch,
                include_dirs=tuple(include or ()),
                compiler=compiler.value,
            )
        say_host_code(found[target][0].kernel)
    if seed is not None and seeds is not None:
        raise UsageError("give --seed (this one) or --seeds (how many), not both")
    sparse = hidden is None and seed is None  # --seed judges that seed only
    secret = tuple(secrets.randbelow(1 << 31) for _ in range(1 if sparse else hidden or 0))

    def choice(supports: Supports) -> Choice:
        every = supports.task.workloads
        return Choice(
            shapes=_names(shapes, every.shapes),
            regimes=_names(regimes, every.regimes),
            masks=_names(masks, every.masks),
            dtypes=_names(dtypes, every.dtypes),
            encodings=_names(encodings, every.encodings),
            seeds=(*(range(seeds or SEEDS) if seed is None else (seed,)), *(() if sparse else secret)),
        )

    todo = {target: plan(supports, choice(supports)) for target, (_, supports) in found.items()}
    if sparse:
        todo = {target: hide_seeds(rows, *secret) for target, rows in todo.items()}
    checked = {
        target: _judge(
            target,
            replace(candidate, max_steps=max_steps),
            supports.task,
            todo[target],
            Policy(tools, limits=() if shapes else LIMITS, strict=strict),
            follow=followed(supports, choice(supports)),
            jobs=jobs or knobs.jobs(),
        )
        for target, (candidate, supports) in found.items()
    }
    verdicts = {target: each.verdicts for target, each in checked.items()}
    covered = {target: each.coverage for target, each in checked.items()}
    if lcov_file is not None:
        lcov_file.write_text(lcov(merge(covered.values())))
    if sarif_file is not None:
        sarif_file.write_text(_sarif(verdicts))
    scopes = {target: scope_of(supports, choice(supports), verdicts[target]) for target, (_, supports) in found.items()}
    for target, (candidate, supports) in found.items():
        hint = hint_for(LocalRuns(candidate), settled(supports, choice(supports)), verdicts[target])
        scopes[target] = replace(scopes[target], hint=hint)
    if form is Format.JSON:
        planned = {target: each.planned for target, each in checked.items()}
        print(json.dumps(check_record(verdicts, planned, covered, hidden_seeds=secret, scopes=scopes), indent=2))
    elif form is Format.SARIF:
        print(_sarif(verdicts))
    else:
        if form is Format.GITHUB:
            for line in annotations(verdicts, limit=max_findings):
                print(line)
        else:
            named = {target: refused_shapes(supports, choice(supports)) for target, (_, supports) in found.items()}
            left_out = named if shapes or targets[1:] else {target: {} for target in found}
            seconds = sum(each.seconds for each in checked.values())
            _show(verdicts, left_out, scopes, max_findings, secret, seconds)
            for target, (candidate, _) in found.items():
                _show_coverage(target, candidate, checked[target], whole=coverage, selected=not shapes)
            if "all" not in tools:
                print(f"Optional checkers: {tool} (memcheck and synccheck are always on)")
        print_line(last_line(verdicts))
    return _exit_code(verdicts, scopes)


def _sarif(verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    return json.dumps(sarif(distinct(verdicts), distinct_suppressed(verdicts)), indent=2)


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    return known if text == "all" else tuple(name for name in text.split(",") if name)


def _check_folder(targets: list[str], chosen: Mapping[str, object], options: FolderOptions, shown: Shown) -> int:
    """Judge a folder of another tool. It has its own reference, inputs and cases, so options that choose them fail."""
    if targets[1:]:
        raise UsageError("give one folder, or several kernels: a folder is judged alone")
    given = [name for name, value in chosen.items() if value]
    if given:
        raise UsageError(f"{', '.join(given)}: {targets[0]} is a folder, which has its own reference, inputs and cases")
    return check_folder(Path(targets[0]), options, shown)


@dataclass(frozen=True)
class Checked:
    """The verdicts about one target."""

    verdicts: list[Verdict]
    planned: int
    coverage: Coverage
    seconds: float
    """From the first workload to the last verdict."""


def _judge(
    target: str,
    candidate: Candidate,
    task: Task,
    todo: Sequence[Workload],
    policy: Policy,
    *,
    follow: Supports | None,
    jobs: int,
) -> Checked:
    start = time.perf_counter()
    verdicts: list[Verdict] = []
    judging = Judging(LocalRuns(candidate), task, todo, policy, follow=follow)
    with bar(target) as tell:
        for verdict in judging.verdicts(jobs):
            verdicts.append(verdict)
            tell(len(verdicts), len(judging.todo))
    return Checked(verdicts, len(judging.todo), judging.coverage, time.perf_counter() - start)


def _show_coverage(target: str, candidate: Candidate, checked: Checked, *, whole: bool, selected: bool) -> None:
    """Print the code that no workload ran, if the workloads were `selected` to run all of it.

    With `whole`, print the source with the count of each line in any case.
    """
    if whole:
        kernel = candidate.kernel
        for line in listing(checked.coverage, kernel.path, kernel.source.text):
            print(line)
    if whole or (selected and conclude(checked.verdicts, checked.planned).passed):
        for line in summary(checked.coverage):
            print(f"{target}: {line}")


def _show(
    verdicts: dict[str, list[Verdict]],
    left_out: Mapping[str, Mapping[str, str]],
    scopes: Mapping[str, Scope],
    max_findings: int,
    secret: tuple[int, ...],
    seconds: float,
) -> None:
    """Print the results. `left_out` has the reason why a kernel does not take a named shape; `secret`: hidden seeds."""
    rows = []
    names = dict.fromkeys(row_of(verdict) for results in verdicts.values() for verdict in results)
    names |= dict.fromkeys(name for shapes in left_out.values() for name in shapes)
    for name in sorted(names, key=lambda name: name == OWN_SIZES):
        cells = []
        for target, results in verdicts.items():
            here = [v for v in results if row_of(v) == name and not v.extra]
            passed = sum(verdict.passed for verdict in here)
            line = left_out[target].get(name)
            cells.append(f"{passed} of {len(here)}" if here else f"unsupported: {line}" if line else "unsupported")
        rows.append([name, *cells])
    print_table(["shape", *verdicts], rows)
    show_errors(verdicts)
    for target, results in verdicts.items():
        _show_quantisation(target, results)
    for target, results in verdicts.items():
        failed = [verdict for verdict in results if not verdict.passed and not verdict.aside]
        for verdict in failed[:SHOWN]:
            _explain(target, verdict, max_findings)
        if len(failed) > SHOWN:
            print(f"{target}: {len(failed) - SHOWN} more workloads did not pass")
    for target, results in verdicts.items():
        # A passed workload may have notes: something was not judged in detail, or an allow line is not needed.
        for line in text_lines(distinct({target: [v for v in results if v.passed]}), limit=max_findings):
            print(f"{target}: {line}")
    for target, covers in scopes.items():
        for line in (
            covers.lines() if target not in RUNGS else covers.skip_lines
        ):  # the ladder's table has the shapes that rungs take
            print(f"{target}: {line}")
    all_verdicts = [verdict for results in verdicts.values() for verdict in results]
    everything = [verdict for verdict in all_verdicts if not verdict.extra]
    passed = sum(verdict.passed for verdict in everything)
    scope = "races: shared and global memory"
    for name in dict.fromkeys(name for verdict in everything for name in verdict.not_judged):
        scope += f" · {name.upper()} not judged: the kernel has no output `{name}`"
    for name in dict.fromkeys(name for verdict in everything for name in verdict.order_dependent):
        scope += f" · {name} has other bits in another order of CTAs and warps, as declared; the gates pass in each"
    for verdict in (each for each in all_verdicts if each.aside):
        scope += f" · {verdict.message}"
    for seed in secret:
        if count := sum(verdict.workload.seed == seed for verdict in everything):
            scope += f" · hidden seed {seed} in {count} of them (again: --seed {seed})"
    summary = f"{passed} of {len(everything)} workloads passed in {seconds:.1f} s"
    print(f"{paint(summary, 'good' if passed == len(everything) else 'bad')} · {scope}")


def _show_quantisation(target: str, results: list[Verdict]) -> None:
    """Print per regime the error of the 8-bit inputs and the error the kernel adds: largest, and mean with sign."""
    rows = []
    coded = [verdict for verdict in results if "err_quant" in verdict.parts]
    for regime, encoding in dict.fromkeys((v.workload.regime, v.workload.encoding) for v in coded):
        parts = [v.parts for v in coded if (v.workload.regime, v.workload.encoding) == (regime, encoding)]
        cells = [regime, encoding]
        for name in ("err_quant", "err_algorithm", "err_kernel"):
            errors = [part[name] for part in parts]
            bias = max((error.bias for error in errors), key=abs)
            cells.append(f"{max(error.max for error in errors):.2g} ({bias:+.1g})")
        rows.append(cells)
    if rows:
        print(f"{target}: largest error (bias) by its cause")
        print_table(["regime", "encoding", "quantisation", "algorithm", "kernel"], rows)


def _explain(target: str, verdict: Verdict, max_findings: int) -> None:
    """Print the cause first: errors before the numbers that they explain, then numbers, then warnings."""
    print_line(f"{target} · {verdict.label} · {verdict.status}: {verdict.message}")
    found = [f"  {line}" for line in text_lines(verdict.further_findings, limit=max_findings)]
    numbers = list(_numbers(verdict))
    for line in (*found, *numbers) if verdict.by_findings else (*numbers, *found):
        print(line)


def _numbers(verdict: Verdict) -> Iterator[str]:
    error = verdict.error
    if error is None:
        return
    wrong = next((gate for gate in verdict.gates if not gate.passed), None)
    if verdict.by_findings:
        yield f"  its numbers are wrong too: {wrong}" if wrong is not None else "  its numbers are right in this run"
    figures = f"max {error.max:.3g}, mean {error.mean:.3g}, bias {error.bias:.3g}"
    yield f"  against float64: {figures}, {100 * error.bad_share:.2g} % bad, {error.sign_flips} sign flips"
    for sample in verdict.samples:
        yield f"  [{', '.join(map(str, sample.index))}] = {sample.out:.6g}, should be {sample.expected:.6g}"


def _exit_code(verdicts: dict[str, list[Verdict]], scopes: Mapping[str, Scope]) -> int:
    """Return the exit code. A requested kernel that never ran is not a pass, whatever the others are."""
    idle = [target for target, results in verdicts.items() if not results]
    for target in idle:
        print(f"weft: nothing selected: {target}: {scopes[target].nothing}", file=sys.stderr)
    statuses = [conclude(results, len(results)).status for results in verdicts.values() if results]
    return exit_code(statuses) or (5 if idle else 0)
