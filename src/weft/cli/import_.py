"""`weft import`: extract device code and launch lines from a torch extension, or judge a folder of tasks."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.core.chips import choose_gpu, target_of
from weft.core.errors import UsageError
from weft.interop.flashinfer_bench.read_folder import is_folder as is_flashinfer
from weft.interop.foreign_task import Tolerance
from weft.interop.robust_kbench_read import is_folder as is_robust
from weft.interop.torch_extension.import_file import Imported, import_torch

from .options import ARCH_HELP, GPU_HELP


def import_file(
    source: Annotated[Path, typer.Argument(help="A CUDA file with PyTorch host code, or a folder of tasks.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The output file; for a folder of tasks, the folder for its kernels."
        ),
    ] = None,
    function: Annotated[str | None, typer.Option(help="The host function (default: the bound one).")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="A=N,D", help="The shape of an array that the source does not determine."),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", metavar="K=V", help="The value of a number that the host function takes."),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option("-I", metavar="DIR", help="Search this directory for includes.")
    ] = None,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    flashinfer_bench: Annotated[
        bool, typer.Option("--flashinfer-bench", help="Require a flashinfer-bench folder.")
    ] = False,
    robust_kbench: Annotated[bool, typer.Option("--robust-kbench", help="Require a robust-kbench task.")] = False,
    solution: Annotated[str | None, typer.Option(help="One solution of a flashinfer-bench folder.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Judge all cases of a robust-kbench task, not only the timed one.")
    ] = False,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials per case (default 1), with robust-kbench's own seeds.")
    ] = None,
    atol: Annotated[float | None, typer.Option(min=0.0, help="Replace the folder's tolerance.")] = None,
    rtol: Annotated[float | None, typer.Option(min=0.0, help="Replace the folder's tolerance.")] = None,
    record: Annotated[bool, typer.Option("--record", help="Write traces or results to the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Extract device code and launch lines from a torch extension; for a folder of tasks, judge the kernels, too.

    Exit codes: 0 complete or all passed, 1 written with missing parts (???) or wrong, 2 usage, 3 cannot be
    separated or judged, 5 nothing selected.
    """
    if source.is_dir():
        if function or shape or value or include:
            raise UsageError("--function, --shape, --value and -I are for one file")
        if flashinfer_bench and not is_flashinfer(source):
            raise UsageError(f"{source} is not a flashinfer-bench folder: it has no definitions/ and solutions/")
        if robust_kbench and not is_robust(source):
            raise UsageError(f"{source} is not a robust-kbench task: it has no func_forward.py and config_forward.json")
        from .check_folder import FolderOptions, Shown, check_folder
        from .findings_output import Format

        tolerance = _tolerance(atol, rtol, is_flashinfer(source))
        options = FolderOptions(every, trials, tolerance, solution, record, output)
        return check_folder(source, options, Shown(Format.JSON if as_json else Format.TEXT))
    shapes = {name: text.split(",") for name, text in _pairs("--shape", shape).items()}
    found = import_torch(
        str(source),
        function=function,
        shapes=shapes,
        values=_pairs("--value", value),
        arch=target_of(choose_gpu(gpu, arch)),
        include_dirs=include or (),
        attention=True,
    )
    if output is not None:
        try:
            output.write_text(found.text)
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error}") from error
    if as_json:
        print(json.dumps(_record(source, output, found), indent=2))
    elif output is None:
        print(found.text, end="")
    else:
        for line in found.lines:
            print(line)
    for problem in found.problems:
        print(f"{source}:{problem.line}: missing: {problem.text}", file=sys.stderr)
    for note in found.notes:
        print(f"{source}:{note.line}: note: {note.text}", file=sys.stderr)
    where = f" → {output}" if output is not None else ""
    origin = f"launch lines from {found.function}" if found.function else "its own launch lines"
    left = len(found.problems)
    state = f"{left} missing: replace each ??? in the lines" if left else "complete"
    print(f"{source}{where}: {origin}, {state}", file=sys.stderr)
    return 1 if found.problems else 0


def _tolerance(atol: float | None, rtol: float | None, either: bool) -> Tolerance | None:
    if atol is None and rtol is None:
        return None
    if atol is None or rtol is None:
        raise UsageError("give both --atol and --rtol")
    return Tolerance(atol, rtol, either=either)


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise UsageError(f"{option} {text}: give it as NAME=VALUE")
        found[name] = value
    return found


def _record(source: Path, output: Path | None, found: Imported) -> dict[str, object]:
    return {
        "source": str(source),
        "output": str(output) if output is not None else None,
        "complete": not found.problems,
        "function": found.function,
        "lines": found.lines,
        "to_complete": [{"line": each.line, "text": each.text} for each in found.problems],
        "notes": [{"line": each.line, "text": each.text} for each in found.notes],
        "text": found.text,
    }
