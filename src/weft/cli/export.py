"""`weft export`: a rung of the ladder in the format of another system."""

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.interop.flashinfer_bench import export_rung
from weft.interop.robust_kbench import DEFAULT_SEEDS, DEFAULT_SHAPES, INIT_METHODS, make_task, write_task
from weft.kernels.ladder import RUNGS

from .options import macros
from .tables import print_table


def export(
    rung: Annotated[str, typer.Argument(help="A rung of the ladder.")],
    robust_kbench: Annotated[
        Path | None, typer.Option("--robust-kbench", metavar="FOLDER", help="Write a robust-kbench task.")
    ] = None,
    flashinfer_bench: Annotated[
        Path | None,
        typer.Option("--flashinfer-bench", metavar="FOLDER", help="Write definitions, workloads, solutions, traces."),
    ] = None,
    shapes: Annotated[
        str, typer.Option(help="Named shapes, with commas; robust-kbench times the first (default: a choice).")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the inputs (robust-kbench).")] = DEFAULT_SEEDS,
    form: Annotated[
        str, typer.Option(help="robust-kbench's config: current, or earlier with arch, seeds, shapes, tolerance.")
    ] = "current",
    traces: Annotated[
        bool, typer.Option("--traces/--no-traces", help="Judge what was written and add traces (flashinfer-bench).")
    ] = True,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Set a lever of the rung.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds other files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write a rung as a robust-kbench task or as a flashinfer-bench data set.

    Exit codes: 0 written, 1 written and a trace did not pass, 2 usage, 3 could not be judged.
    """
    names = tuple(name for name in shapes.split(",") if name)
    if (robust_kbench is None) == (flashinfer_bench is None):
        raise UsageError(f"say where to: weft export {rung} --robust-kbench FOLDER, or --flashinfer-bench FOLDER")
    if flashinfer_bench is not None:
        files = export_rung.make_files(rung, shapes=names or export_rung.DEFAULT_SHAPES, defines=macros(define))
        write_task(files, flashinfer_bench, force=force)
        return _flashinfer(rung, flashinfer_bench, files, traces=traces, as_json=as_json)
    assert robust_kbench is not None
    names = names or DEFAULT_SHAPES
    files = make_task(rung, shapes=names, seeds=seeds, defines=macros(define), form=form)
    write_task(files, robust_kbench, force=force)
    # The earlier form has no init methods: its cases are shapes × seeds.
    init_methods = INIT_METHODS[RUNGS[rung].task] if form == "current" else ()
    cases = len(names) * seeds * max(1, len(init_methods))
    if as_json:
        record = {
            "rung": rung,
            "folder": str(robust_kbench),
            "files": list(files),
            "shapes": names,
            "seeds": seeds,
            "init_methods": init_methods,
            "cases": cases,
        }
        print(json.dumps(record, indent=2))
        return 0
    print_table(["file", "lines"], [[robust_kbench / name, text.count("\n")] for name, text in files.items()])
    counted = f"{len(names)} shapes × {seeds} seeds" + (f" × {len(init_methods)} init methods" if init_methods else "")
    print(f"{rung} → {robust_kbench}: {counted} = {cases} cases · not run on hardware")
    return 0


def _flashinfer(rung: str, folder: Path, files: dict[str, str], *, traces: bool, as_json: bool) -> int:
    """Say what was written, and judge it as any such folder is judged."""
    if as_json and not traces:
        print(json.dumps({"rung": rung, "folder": str(folder), "files": list(files)}, indent=2))
    if not as_json:
        print_table(["file", "lines"], [[folder / name, text.count("\n")] for name, text in files.items()])
        print(f"{rung} → {folder}: definitions: {sum(name.startswith('definitions') for name in files)}")
    if not traces:
        return 0
    from .check_folder import FolderOptions, Shown, check_folder  # PyTorch, for the definitions' references
    from .findings_output import Format

    return check_folder(folder, FolderOptions(record=True), Shown(Format.JSON if as_json else Format.TEXT))
