"""`weft profile`: model a kernel's cost on a GPU, with exact counters and the cycle model. Nothing is measured."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.core.chips import DEFAULT_GPU, Chip, chip_of, chips, choose_gpu
from weft.core.chips import chip as find_chip
from weft.core.errors import UsageError
from weft.engines.kernel_file import KernelFile
from weft.interop.open_kernel import load
from weft.judge.select import path_of
from weft.judge.shape_sizes import call_at
from weft.profile.baseline import compare, write_baseline
from weft.profile.kernel_profile import KernelProfile, NotClean, profile_kernel
from weft.profile.ncu_compare import compare_with_ncu
from weft.profile.ncu_metric_list import check_list, read_list
from weft.profile.ncu_report_file import read_report

from .findings_output import text_lines
from .launch_draft import draft_shown, say_host_code
from .options import COMPILER_HELP, Compiler, macros, sizes
from .profile_ncu import answers_record, comparison_record, show_answers, show_comparison
from .profile_ncu import status as ncu_status
from .profile_output import change_lines, record, show, show_side_by_side
from .terminal import waiting


def profile(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Files with launch lines, or rungs; several are compared.")
    ] = None,
    gpu: Annotated[
        str, typer.Option(help=f"The modelled GPU: {', '.join(chips())} (default: the file's, else {DEFAULT_GPU}).")
    ] = "",
    shape: Annotated[str, typer.Option(help="A shape of `weft list` (a rung's default: mission, or its task's).")] = "",
    size: Annotated[list[str] | None, typer.Option("--size", metavar="S=N", help="Set a size.")] = None,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    include: Annotated[
        list[str] | None, typer.Option("-I", metavar="DIR", help="Search this directory for includes.")
    ] = None,
    compiler: Annotated[Compiler, typer.Option(help=COMPILER_HELP)] = Compiler.NVRTC,
    clock: Annotated[
        float | None, typer.Option(help="Clock of the estimate in GHz (default: the boost clock).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated inputs.")] = 0,
    lines: Annotated[int, typer.Option(min=0, help="Number of costly source lines to print.")] = 5,
    png: Annotated[
        Path | None, typer.Option("-o", "--png", help="Draw one kernel: roofline, bounds, lines (.svg, .pdf).")
    ] = None,
    ncu: Annotated[Path | None, typer.Option(help="Compare with an ncu report: CSV or .ncu-rep.")] = None,
    metrics: Annotated[str, typer.Option(help="Print these ncu metrics: a list with commas, or a file.")] = "",
    baseline: Annotated[Path | None, typer.Option(help="A file of counters to compare with.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Write the counters to the baseline.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Fail if a counter is worse than in the baseline.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Print counters by their ncu names, occupancy, bounds in cycles and an estimate: modelled, not measured.

    Exit codes: 0 profiled, 1 worse than the baseline or different from ncu, 2 usage error, 3 could not be profiled
    or compared.
    """
    if (update or check) != (baseline is not None) or (update and check):
        raise UsageError("give --baseline FILE with one of --update and --check")
    if sum(bool(each) for each in (baseline, ncu, metrics)) > 1:
        raise UsageError("give only one of --baseline, --ncu and --metrics")
    if png is not None:
        from weft.diagnose.figure import require_matplotlib

        require_matplotlib()
    if (targets or [])[1:] and (png or ncu):
        raise UsageError("--png draws one kernel" if png else "--ncu compares one kernel")
    asked = read_list(metrics) if metrics else ()
    check_list(asked, find_chip(choose_gpu(gpu)).architecture.capability)
    if not targets:
        return _names_only(asked, find_chip(choose_gpu(gpu)))
    measured = read_report(ncu) if ncu is not None else ()
    found = []
    for target in targets:
        with draft_shown(target):
            kernel = _load(target, gpu, macros(define), include or [], compiler)
        chip = chip_of(kernel.gpu)
        check_list(asked, chip.architecture.capability)
        say_host_code(kernel)
        call, asked_sizes = call_at(kernel, shape, target, seed=seed), sizes(size)
        with waiting(f"profiling {target}"):
            try:
                found.append(
                    profile_kernel(
                        kernel,
                        chip,
                        target=target,
                        arrays=call.arrays,
                        sizes={**call.sizes, **asked_sizes},
                        clock_ghz=clock,
                        seed=seed,
                    )
                )
            except NotClean as error:
                for line in text_lines(error.findings, limit=20):
                    print(line, file=sys.stderr)
                raise
    profiles = tuple(found)
    if png is not None:
        from .profile_figure import draw

        draw(profiles[0], png)
    if baseline is not None:
        return _baseline(baseline, profiles, update=update, as_json=as_json)
    comparison = compare_with_ncu(profiles[0], measured) if ncu is not None else None
    if as_json:
        made: dict[str, Any] = {"modelled": True, "profiles": [record(each, lines) for each in profiles]}
        if asked:
            made["metrics"] = [answers_record(each, asked) for each in profiles]
        if ncu is not None and comparison is not None:
            made["ncu"] = comparison_record(ncu, comparison)
        print(json.dumps(made, indent=2))
        return ncu_status(comparison) if comparison is not None else 0
    if ncu is not None and comparison is not None:
        return show_comparison(profiles[0], ncu, comparison)
    if asked:
        for each in profiles:
            show_answers(each, asked)
    elif len(profiles) > 1:
        show_side_by_side(profiles)
    else:
        show(profiles[0], lines)
    return 0


def _names_only(asked: tuple[str, ...], chip: Chip) -> int:
    """Check a list of metrics without a kernel."""
    if not asked:
        raise UsageError("name a kernel file or a rung of the ladder, or a list of --metrics to check")
    print(f"metrics: {len(asked)}, all known to ncu on compute capability {chip.architecture.capability}; nothing ran")
    return 0


def _load(target: str, gpu: str, defines: dict[str, str], include_dirs: list[str], compiler: Compiler) -> KernelFile:
    return load(
        path_of(target),
        gpu=find_chip(gpu).name if gpu else "",
        defines=defines,
        include_dirs=include_dirs,
        compiler=compiler.value,
    )


def _baseline(file: Path, profiles: tuple[KernelProfile, ...], *, update: bool, as_json: bool) -> int:
    if update:
        write_baseline(file, profiles)
        print(f"{file}: {len(profiles)} {'profile' if len(profiles) == 1 else 'profiles'} written")
        return 0
    changes = [(each, compare(file, each)) for each in profiles]
    worse = sum(change.worse for _, every in changes for change in every)
    if as_json:
        rows = [
            {
                "target": each.target,
                "entry": change.entry,
                "counter": change.counter,
                "before": change.before,
                "now": change.now,
                "worse": change.worse,
                "lines": [
                    {
                        "place": str(line.place) if line.place else None,
                        "text": line.text,
                        "before": line.before,
                        "now": line.now,
                    }
                    for line in change.lines
                ],
            }
            for each, every in changes
            for change in every
        ]
        print(json.dumps({"baseline": str(file), "worse": worse, "changes": rows}, indent=2))
        return 1 if worse else 0
    for each, every in changes:
        for line in change_lines(each, every):
            print(line)
    better = sum(len(every) for _, every in changes) - worse
    advice = " (to record it: --update)" if better and not worse else ""
    print(f"{file}: {worse} worse, {better} better{advice}" if worse or better else f"{file}: nothing changed")
    return 1 if worse else 0
