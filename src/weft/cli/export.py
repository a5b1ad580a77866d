"""`weft export`: write a kernel in the format of another tool."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from weft.bundle.gather import CANDIDATE, from_search
from weft.core.errors import UsageError
from weft.evolve.run_summary import summary_of
from weft.interop.exported_kernel import ExportedKernel, exported_file, exported_rung, named_shapes
from weft.interop.flashinfer_bench import export_rung
from weft.interop.robust_kbench import (
    DEFAULT_SEEDS,
    DEFAULT_SHAPES,
    INIT_METHODS,
    group_check,
    make_task,
    write_task,
)
from weft.interop.torch_binding import torch_unit
from weft.judge.shape_sizes import call_at
from weft.kernels.ladder import RUNGS
from weft.store.store import open_store

from .options import macros
from .tables import print_table

_WINNER = re.compile(r"(\d+):winner")


def export(
    target: Annotated[
        str, typer.Argument(help="A rung, a CUDA file with launch lines, RUN:CANDIDATE or RUN:winner of a search.")
    ],
    torch: Annotated[
        Path | None, typer.Option("--torch", metavar="FILE.cu", help="Write one file: a PyTorch extension.")
    ] = None,
    robust_kbench: Annotated[
        Path | None, typer.Option("--robust-kbench", metavar="FOLDER", help="Write a robust-kbench task.")
    ] = None,
    flashinfer_bench: Annotated[
        Path | None,
        typer.Option(
            "--flashinfer-bench", metavar="FOLDER", help="Write a rung: definitions, workloads, solutions, traces."
        ),
    ] = None,
    shapes: Annotated[
        str,
        typer.Option(
            help="Named shapes, with commas: templates are instantiated for them, robust-kbench times the first."
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of the inputs (robust-kbench).")] = DEFAULT_SEEDS,
    form: Annotated[
        str, typer.Option(help="robust-kbench's config: current, or earlier with arch, seeds, shapes, tolerance.")
    ] = "current",
    traces: Annotated[
        bool, typer.Option("--traces/--no-traces", help="Judge what was written and add traces (flashinfer-bench).")
    ] = True,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Set a lever of the kernel.")] = None,
    store: Annotated[
        str | None, typer.Option(metavar="WHERE", help="The store of RUN:CANDIDATE (default: WEFT_STORE).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write to a folder that has other files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Write a kernel as a PyTorch extension, a robust-kbench task or a flashinfer-bench data set.

    Exit codes: 0 written, 1 written but a trace did not pass, 2 usage error, 3 could not be judged.
    """
    names = tuple(name for name in shapes.split(",") if name)
    if sum(each is not None for each in (torch, robust_kbench, flashinfer_bench)) != 1:
        ways = "--torch FILE.cu, --robust-kbench FOLDER or --flashinfer-bench FOLDER"
        raise UsageError(f"name the output: weft export {target} with one of {ways}")
    if flashinfer_bench is not None:
        files = export_rung.make_files(target, shapes=names or export_rung.DEFAULT_SHAPES, defines=macros(define))
        write_task(files, flashinfer_bench, force=force)
        return _flashinfer(target, flashinfer_bench, files, traces=traces, as_json=as_json)
    if robust_kbench is not None and target in RUNGS:
        names = names or DEFAULT_SHAPES
        files = make_task(target, shapes=names, seeds=seeds, defines=macros(define), form=form)
    else:
        with _exported(target, macros(define), store) as exported:
            if torch is not None:
                return _torch(exported, names, torch, as_json=as_json)
            names = names or tuple(shape.name for shape in named_shapes(DEFAULT_SHAPES) if exported.takes(shape))
            files = make_task(exported, shapes=names, seeds=seeds, form=form)
    assert robust_kbench is not None
    write_task(files, robust_kbench, force=force)
    # The earlier form has no init methods: its cases are shapes × seeds.
    init_methods = INIT_METHODS if form == "current" else ()
    cases = len(names) * seeds * max(1, len(init_methods))
    if as_json:
        record = {
            "rung": target,
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
    print(f"{target} → {robust_kbench}: {counted} = {cases} cases · not run on hardware")
    return 0


@contextmanager
def _exported(target: str, defines: Mapping[str, str], store: str | None) -> Iterator[ExportedKernel]:
    """Yield the kernel. The file of a search's candidate is in a folder that is removed afterwards."""
    if target in RUNGS:
        if RUNGS[target].language != "CUDA":
            raise UsageError(f"{target} is a Triton kernel: call it from PyTorch directly")
        yield exported_rung(target, defines)
    elif CANDIDATE.fullmatch(target) or _WINNER.fullmatch(target):
        run, which = target.split(":")
        with open_store(store) as kept, tempfile.TemporaryDirectory() as folder:
            winner = summary_of(kept, int(run)).winner if which == "winner" else int(which)
            if winner is None:
                raise UsageError(f"run {run} has no winner yet: weft runs show {run} lists its candidates")
            source = from_search(kept, int(run), winner).source
            if source.language != "cuda":
                raise UsageError(f"candidate {winner} of run {run} is {source.language}; only CUDA C++ is exported")
            file = Path(folder) / f"run{run}_candidate{winner}.cu"
            file.write_text(source.text)
            about = f"candidate {winner} of the search {run}"
            yield exported_file(file, {**source.defines, **defines}, name=f"{run}:{winner}", about=about)
    elif Path(target).is_file():
        yield exported_file(Path(target), defines)
    else:
        known = ", ".join(RUNGS)
        raise UsageError(f"{target} is neither a file nor a rung ({known}), nor RUN:CANDIDATE of a search")


def _torch(exported: ExportedKernel, names: tuple[str, ...], file: Path, *, as_json: bool) -> int:
    """Write the extension; without named shapes it supports the sizes that the file declares."""
    kernel = exported.kernel
    sizes = [_sizes_at(exported, name) for name in names] or [dict(kernel.sizes)]
    if file.exists() and Path(kernel.path).exists() and file.samefile(kernel.path):
        raise UsageError(f"--torch {file} would overwrite the kernel: name another file")
    served = f"the shapes {', '.join(names)}" if names else "its own sizes"
    command = f"weft export {exported.name} --torch {file.name}"
    notes = [
        f"{exported.name} as a PyTorch extension: {exported.about}.",
        "",
        f"Generated by `{command}` from {exported.file} and its `// weft:` lines:",
        f"change those, not this file. Its templates are instantiated for {served}.",
        "The host part has not been run on hardware.",
    ]
    outputs = [line.name for line in kernel.outputs]
    text = torch_unit(kernel, sizes, notes=notes, checks=group_check(kernel), every_output=len(outputs) > 1)
    try:
        file.write_text(text)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error}") from error
    inputs = [line.name for line in kernel.lines.arrays if line.role == "in"]
    if as_json:
        record = {"target": exported.name, "file": str(file), "inputs": inputs, "outputs": outputs, "shapes": names}
        print(json.dumps(record, indent=2))
    else:
        call = f"{', '.join(outputs)} = forward({', '.join(inputs)})"
        print(f"{exported.name} → {file}: {call}, for {served} · not run on hardware")
    return 0


def _sizes_at(exported: ExportedKernel, name: str) -> dict[str, int]:
    """Return the kernel's sizes at a shape; raises UsageError where it does not take the shape."""
    found = dict(call_at(exported.kernel, name).sizes)
    if exported.largest_d is not None and found["D"] > exported.largest_d:
        raise UsageError(f"{exported.name} takes D up to {exported.largest_d}; leave out shape {name}")
    return found


def _flashinfer(rung: str, folder: Path, files: dict[str, str], *, traces: bool, as_json: bool) -> int:
    """Print what was written, and judge it like any other flashinfer-bench folder."""
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
