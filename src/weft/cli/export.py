"""`weft export`: a rung of the ladder in the format of another system."""

import json
from pathlib import Path
from typing import Annotated

import typer

from weft.core.errors import UsageError
from weft.interop.robust_kbench import DEFAULT_SEEDS, DEFAULT_SHAPES, INIT_METHODS, make_task, write_task
from weft.kernels.ladder import RUNGS

from .options import macros
from .tables import print_table


def export(
    rung: Annotated[str, typer.Argument(help="A rung of the ladder: fp8_wmma or fp8_scalar.")],
    robust_kbench: Annotated[
        Path | None, typer.Option("--robust-kbench", metavar="FOLDER", help="Write a robust-kbench task.")
    ] = None,
    shapes: Annotated[str, typer.Option(help="Named shapes, with commas; the first is timed.")] = ",".join(
        DEFAULT_SHAPES
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the inputs.")] = DEFAULT_SEEDS,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Set a lever of the rung.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds other files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write a rung as a robust-kbench task: PyTorch reference, cases, CUDA file with its binding.

    Exit codes: 0 written, 2 usage.
    """
    if robust_kbench is None:
        raise UsageError(f"say where to: weft export {rung} --robust-kbench FOLDER")
    names = tuple(name for name in shapes.split(",") if name)
    files = make_task(rung, shapes=names, seeds=seeds, defines=macros(define))
    write_task(files, robust_kbench, force=force)
    init_methods = INIT_METHODS[RUNGS[rung].task]
    cases = len(names) * seeds * len(init_methods)
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
    counted = f"{len(names)} shapes × {seeds} seeds × {len(init_methods)} init methods"
    print(f"{rung} → {robust_kbench}: {counted} = {cases} cases · not run on hardware")
    return 0
