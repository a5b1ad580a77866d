"""`weft run`: run a CUDA, Triton or PTX file with launch lines on the virtual GPU."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from weft.core.errors import UsageError
from weft.core.finding_text import github_lines, sarif, summary
from weft.engines.arguments import Array
from weft.engines.kernel_file import MAX_STEPS, KernelFile
from weft.engines.virtual import VirtualGPU
from weft.interop.open_kernel import load
from weft.judge.select import path_of
from weft.judge.shape_sizes import call_at
from weft.probes.tools import checkers_of, watch_for

from .findings_output import Format
from .launch_draft import draft_shown, say_host_code
from .options import ARCH_HELP, COMPILER_HELP, GPU_HELP, STRICT_HELP, Compiler, Mode, files, macros, sizes
from .run_output import FILLED, ShownRun, filled_from, record, show, summarise
from .terminal import waiting


def run(
    source: Annotated[
        str, typer.Argument(help="A CUDA C++, Triton or PTX file with launch lines, or a rung of the ladder.")
    ],
    shape: Annotated[str, typer.Option(help="A named shape of `weft list`, for a file with arrays q, k, v.")] = "",
    size: Annotated[list[str] | None, typer.Option("--size", metavar="S=N", help="Set a size.")] = None,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    include: Annotated[
        list[str] | None, typer.Option("-I", metavar="DIR", help="Search this directory for includes.")
    ] = None,
    compiler: Annotated[Compiler, typer.Option(help=COMPILER_HELP)] = Compiler.NVRTC,
    launch: Annotated[
        Path | None, typer.Option(help="Launch lines of a PTX file (default: the .launch file next to it).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated inputs.")] = 0,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    mode: Annotated[Mode, typer.Option(help="Tensor cores: round like the hardware, or plain fp32.")] = Mode.HARDWARE,
    threads: Annotated[int | None, typer.Option(min=1, help="Host threads (default: all).")] = None,
    schedule: Annotated[int, typer.Option(min=0, help="Number of another order of CTAs and warps.")] = 0,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T,T",
            help="Optional checkers: initcheck, racecheck, wavefronts, all; memcheck and synccheck are always on.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--input", metavar="A=FILE.npy", help="Read an array from a file.")
    ] = None,
    save: Annotated[
        list[str] | None, typer.Option("--save", metavar="A=FILE.npy", help="Write an array to a file.")
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Limit of loop iterations per host thread.")] = MAX_STEPS,
    max_findings: Annotated[int, typer.Option(min=0, help="Findings printed; all are counted.")] = 100,
    strict: Annotated[bool, typer.Option("--strict", help=STRICT_HELP)] = False,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; same as --format json.")] = False,
) -> int:
    """Run a CUDA, Triton or PTX file on the virtual GPU, with the sizes and arrays of its launch lines.

    Exit codes: 0 no errors, 1 errors (with --strict also warnings), 2 usage or compile error, 3 unsupported.
    """
    inputs, chosen, targets = files("--input", given), sizes(size), files("--save", save)
    tools = [name for names in tool or [] for name in names.split(",")]
    watch = watch_for(tools)
    with draft_shown(source):
        kernel = load(
            path_of(source),
            gpu=gpu,
            arch=arch,
            defines=macros(define),
            include_dirs=include or [],
            launch=launch,
            compiler=compiler,
        )
    say_host_code(kernel)
    call = call_at(kernel, shape, seed=seed)
    chosen = {**call.sizes, **chosen}
    _check_targets(kernel, targets)
    sources = {name: f"drawn for --shape {shape}, seed {seed}" for name in call.arrays}
    sources |= {name: str(file) for name, file in inputs.items()}
    arrays = {**call.arrays, **{name: _read(file) for name, file in inputs.items()}}
    device = VirtualGPU(kernel.gpu, mode=mode.value, threads=threads, schedule=schedule)
    with waiting(f"compiling {source}"):
        diagnostics = kernel.diagnostics(arrays, sizes=chosen)
    for diagnostic in diagnostics:
        print(diagnostic, file=sys.stderr)
    with waiting(f"compiling for this host and running {source}"):
        outcome, results = kernel.run(device, arrays, sizes=chosen, seed=seed, watch=watch, max_steps=max_steps)
    for name, file in targets.items():
        _write(file, results[name])
    shown = ShownRun(
        kernel,
        outcome,
        tuple(summarise(line.name, results[line.name]) for line in kernel.outputs),
        tuple(filled_from(line, sources, seed) for line in kernel.lines.arrays if line.role in FILLED),
        checkers_of(tools),
        mode.value,
    )
    if as_json or form is Format.JSON:
        print(json.dumps(record(shown), indent=2))
    elif form is Format.SARIF:
        print(json.dumps(sarif(outcome.findings, outcome.suppressed), indent=2))
    elif form is Format.GITHUB:
        for line in github_lines(outcome.findings, limit=max_findings):
            print(line)
        print(summary(outcome.findings, outcome.suppressed))
    else:
        show(shown, max_findings)
    return 0 if outcome.passes(strict=strict) else 1


def _check_targets(kernel: KernelFile, targets: Mapping[str, Path]) -> None:
    known = [line.name for line in kernel.lines.arrays]
    for name in targets:
        if name not in known:
            raise UsageError(f"--save {name}: not an array of this kernel; it has {', '.join(known)}")


def _read(file: Path) -> Array:
    try:
        array: Any = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{file} holds several arrays; --input takes a file with one (.npy)")
    return array


def _write(file: Path, array: Array) -> None:
    try:
        with file.open("wb") as stream:  # np.save would add .npy to another name
            np.save(stream, array)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error}") from error
