"""`weft diagnose`: find the first wrong stage of a kernel, its source line and its cure."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from weft.core.errors import UsageError
from weft.core.status import Status
from weft.diagnose.diagnose import diagnose as look_inside
from weft.diagnose.diagnose import diagnose_workload
from weft.diagnose.given import given_task
from weft.diagnose.records import Diagnosis
from weft.engines.arguments import Array
from weft.judge.select import Choice, find_candidate
from weft.tasks.registry import TASKS

from .diagnose_output import record, text
from .launch_draft import draft_shown, say_host_code
from .options import ARCH_HELP, GPU_HELP, files, macros
from .terminal import print_line, waiting


def diagnose(
    kernel: Annotated[str, typer.Argument(help="A CUDA file with launch lines, or a rung of the ladder.")],
    task: Annotated[
        str | None, typer.Option(help=f"Task of a file: {', '.join(TASKS)} or a Python file (default: sdpa).")
    ] = None,
    shape: Annotated[str, typer.Option(help="Named shapes, with commas (default: a quick choice).")] = "",
    regime: Annotated[str, typer.Option(help="Input regimes, with commas (default: a quick choice).")] = "",
    mask: Annotated[
        str, typer.Option(help="Masks: none, top_left, bottom_right; causal means both (default: the kernel's).")
    ] = "",
    dtype: Annotated[str, typer.Option(help="Type: f16, bf16, f32 (default: the kernel's first).")] = "",
    encoding: Annotated[
        str, typer.Option(help="Encodings of 8-bit inputs: sim_fp8, e4m3 (default: the kernel's).")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs.")] = 0,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="A=FILE.npy", help="Your inputs from files; give all of them."),
    ] = None,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    shrink: Annotated[bool, typer.Option(help="Find the smallest failing shape first.")] = True,
    repair: Annotated[
        bool, typer.Option("--repair", help="Try small edits until the kernel passes: their line is the mistake's.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="As --repair, and write the fix into the file if there is one.")
    ] = False,
    png: Annotated[
        Path | None, typer.Option("-o", "--png", help="Draw the error over O and the first wrong stage.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Find the first wrong stage of a kernel: its KV tile, rows, columns, source line, cause and cure.

    Exit codes: 0 nothing is wrong, 1 wrong and diagnosed, 2 usage error, 3 could not be judged.
    """
    if png is not None:
        from weft.diagnose.figure import require_matplotlib

        require_matplotlib()
    with draft_shown(kernel):
        candidate, supports = find_candidate(kernel, task=task, gpu=gpu, arch=arch)
    if apply and candidate.rung is not None:
        raise UsageError(f"--apply does not change {candidate.path}, which is Weft's: diagnose a copy of it")
    say_host_code(candidate.kernel)
    candidate = replace(candidate, defines=macros(define))
    choice = Choice(
        shapes=_names(shape),
        regimes=_names(regime),
        masks=_names(mask),
        dtypes=_names(dtype),
        encodings=_names(encoding),
        seeds=(seed,),
    )
    own = {name: _read(file) for name, file in files("--input", given).items()}
    with waiting(f"diagnosing {kernel}", long=True) as tell:
        if own:
            supports, workload = given_task(
                supports, own, mask="".join(choice.masks[:1]), dtype="".join(choice.dtypes[:1]), encoding=encoding
            )
            found = diagnose_workload(candidate, supports, workload, progress=tell)
        else:
            found = look_inside(candidate, supports, choice, shrink=shrink, repair=repair or apply, progress=tell)
    if as_json:
        print(json.dumps(record(found), indent=2))
    else:
        for line in text(found):
            print_line(line)
    if apply:
        _apply(found)
    if png is not None:
        from weft.diagnose.figure import draw

        if not draw(found, png):
            print(f"weft: nothing to draw, {png} is not written", file=sys.stderr)
    if found.verdict.status is Status.UNSUPPORTED:
        return 3
    return 0 if found.healthy else 1


def _apply(found: Diagnosis) -> None:
    if found.fix is not None:
        found.fix.apply()
        print(f"weft: {found.fix.path} is changed", file=sys.stderr)
    elif not found.healthy:
        print(f"weft: no fix was found, {found.case.candidate.path} is not changed", file=sys.stderr)


def _read(file: Path) -> Array:
    try:
        array: Array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    return array


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)
