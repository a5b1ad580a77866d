"""`weft report`: write one HTML page about a kernel or a search."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from weft.attention.shapes import SHAPES, is_shape
from weft.core.chips import chip as find_chip
from weft.core.chips import chips
from weft.core.errors import UsageError
from weft.core.names import did_you_mean
from weft.core.status import Status
from weft.judge.select import Choice, find_candidate
from weft.report.check_json import check_report
from weft.report.kernel_report import NothingSelected, ReportOptions, kernel_report
from weft.report.page import kernel_page
from weft.report.records import KernelReport
from weft.tasks.registry import TASKS

from .check_findings import exit_code
from .launch_draft import draft_shown, say_host_code
from .options import macros
from .terminal import paint, say_error, waiting


def report(
    run: Annotated[
        str, typer.Argument(help="A kernel file, a rung, the number of a search, or the JSON of weft check.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The HTML file to write.")] = Path(
        "report.html"
    ),
    task: Annotated[
        str | None, typer.Option(help=f"Task of a file: {', '.join(TASKS)} or a Python file (default: sdpa).")
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
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per workload.")] = 1,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    gpu: Annotated[str, typer.Option(help=f"The GPU for the cost: {', '.join(chips())}.")] = "l4",
    profile_shape: Annotated[str, typer.Option(help="The shape for the cost (default: mission, or the task's).")] = "",
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="WHERE", help="The store of the search (default: WEFT_STORE, or the user's)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write one self-contained HTML page: verdict, error map, first wrong stage, findings, cost; or a search.

    Exit codes: 0 correct, or a search, 1 wrong, 2 usage error, 3 could not be judged, 5 nothing selected.
    """
    _require_folder(output)
    if run.isdecimal() and not Path(run).exists():
        return _search(int(run), output, store, as_json=as_json)
    if run.endswith(".json"):
        return _written(check_report(Path(run)), output, as_json=as_json)
    chip = find_chip(gpu)
    if profile_shape and not is_shape(profile_shape):
        hint = did_you_mean(profile_shape, SHAPES)
        raise UsageError(f"--profile-shape {profile_shape}{hint}: `weft list` has {', '.join(SHAPES)}")
    with draft_shown(run):
        candidate, supports = find_candidate(run, task=task, gpu=chip.name)
    say_host_code(candidate.kernel)
    every = supports.task.workloads
    choice = Choice(
        shapes=_names(shapes, every.shapes),
        regimes=_names(regimes, every.regimes),
        masks=_names(masks, every.masks),
        dtypes=_names(dtypes, every.dtypes),
        encodings=_names(encodings, every.encodings),
        seeds=tuple(range(seeds)),
    )
    given = {
        "--task": task or "",
        "--shapes": shapes,
        "--regimes": regimes,
        "--masks": masks,
        "--dtypes": dtypes,
        "--encodings": encodings,
        "--seeds": str(seeds),
        "--gpu": gpu,
        "--profile-shape": profile_shape,
    }
    words = ["weft", "report", run, *(word for name, value in given.items() if value for word in (name, value))]
    words += [*(word for each in define or () for word in ("-D", each)), "-o", output.name]
    candidate = replace(candidate, defines=macros(define))
    asked = ReportOptions(run, candidate, supports, choice, chip, profile_shape, shlex.join(words))
    try:
        with waiting(f"judging {run}") as tell:
            made = kernel_report(asked, tell)
    except NothingSelected as error:
        say_error(str(error))
        return 5
    return _written(made, output, as_json=as_json)


def _written(made: KernelReport, output: Path, *, as_json: bool) -> int:
    size = _write(output, kernel_page(made))
    if as_json:
        answer = {
            "kernel": made.target,
            "status": made.status,
            "passed": made.passed,
            "message": made.message,
            "sentence": made.sentence,
        }
        print(json.dumps({**answer, "report": str(output), "bytes": size}, indent=2))
    else:
        print(paint(f"{made.target}: {made.status}: {made.sentence}", "good" if made.passed else "bad"))
        print(_last_line(output, size))
    return exit_code([Status(made.status)])


def _search(run: int, output: Path, where: str | None, *, as_json: bool) -> int:
    from weft.report.page import search_page
    from weft.report.search_report import search_report
    from weft.store.store import open_store

    words = ["weft", "report", str(run), *(["--store", where] if where else []), "-o", output.name]
    with open_store(where) as opened:
        made = search_report(opened, run, command=shlex.join(words))
    size = _write(output, search_page(made))
    if as_json:
        answer = {"run": run, "state": made.state, "message": made.sentence}
        print(json.dumps({**answer, "report": str(output), "bytes": size}, indent=2))
    else:
        print(f"run {run} · {made.state} · {made.sentence}")
        print(_last_line(output, size))
    return 0


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    return known if text == "all" else tuple(name for name in text.split(",") if name)


def _require_folder(output: Path) -> None:
    """Refuse a wrong path before the kernel is judged, which takes minutes."""
    if not output.parent.is_dir() or output.is_dir():
        raise UsageError(f"-o {output}: give a file in a folder that exists")


def _write(output: Path, text: str) -> int:
    data = text.encode()
    try:
        output.write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error}") from error
    return len(data)


def _last_line(output: Path, size: int) -> str:
    return f"{output}: {size / 1000:,.0f} kB, self-contained: open it in any browser"
