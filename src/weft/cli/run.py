"""`weft run`: a CUDA or PTX file with launch lines, on the virtual GPU."""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import typer

from weft.core.errors import UsageError
from weft.core.finding_json import finding_record, suppressed_record
from weft.core.finding_text import github_lines, sarif, summary
from weft.core.records import Run
from weft.engines.arguments import Array
from weft.engines.element_types import ELEMENT_TYPES
from weft.engines.kernel_file import MAX_STEPS, KernelFile
from weft.engines.virtual import VirtualGPU
from weft.interop.open_kernel import load
from weft.judge.shape_sizes import shape_sizes
from weft.probes.tools import watch_for

from .findings_output import Format, text_lines
from .launch_draft import draft_shown, say_host_code
from .options import ARCH_HELP, COMPILER_HELP, GPU_HELP, Compiler, files, macros, sizes
from .tables import print_table
from .terminal import print_line, waiting

_NAMES = {dtype: name for name, dtype in ELEMENT_TYPES.items()}


@dataclass(frozen=True)
class ArraySummary:
    """An array in one line: figures over its elements that are not NaN (None if there are none), and a count of NaN."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("output", "type", "shape", "min", "max", "mean", "NaN")

    name: str
    element: str
    shape: tuple[int, ...]
    least: float | int | None
    most: float | int | None
    mean: float | None
    nan_count: int

    def row(self) -> tuple[str, ...]:
        """For a table."""
        shape = "×".join(map(str, self.shape))
        figures = (_figure(value) for value in (self.least, self.most, self.mean))
        return (self.name, self.element, shape, *figures, str(self.nan_count))

    def record(self) -> dict[str, object]:
        """For JSON, which has no infinity: it is written as text."""
        return {
            "name": self.name,
            "type": self.element,
            "shape": self.shape,
            "min": _json(self.least),
            "max": _json(self.most),
            "mean": _json(self.mean),
            "nan_count": self.nan_count,
        }


class Mode(StrEnum):
    """Tensor-core arithmetic."""

    HARDWARE = "hardware"
    IEEE = "ieee"


def run(
    source: Annotated[Path, typer.Argument(help="A CUDA C++ or PTX file with launch lines.", dir_okay=False)],
    shape: Annotated[str, typer.Option(help="A named shape of `weft list`, for a file with arrays q, k, v.")] = "",
    size: Annotated[list[str] | None, typer.Option("--size", metavar="S=N", help="Set a size.")] = None,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    include: Annotated[list[str] | None, typer.Option("-I", metavar="DIR", help="Find includes.")] = None,
    compiler: Annotated[Compiler, typer.Option(help=COMPILER_HELP)] = Compiler.NVRTC,
    launch: Annotated[Path | None, typer.Option(help="The launch lines of a PTX file (default: beside it).")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the generated inputs.")] = 0,
    gpu: Annotated[str, typer.Option(help=GPU_HELP)] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    mode: Annotated[Mode, typer.Option(help="Tensor cores: as the silicon rounds, or plain fp32.")] = Mode.HARDWARE,
    threads: Annotated[int | None, typer.Option(min=1, help="Host threads (default: all).")] = None,
    schedule: Annotated[int, typer.Option(min=0, help="Another order of CTAs and warps.")] = 0,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T,T",
            help="initcheck, racecheck, wavefronts, or all checkers; memcheck and synccheck are always on.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--input", metavar="A=FILE.npy", help="Take an array from a file.")
    ] = None,
    save: Annotated[
        list[str] | None, typer.Option("--save", metavar="A=FILE.npy", help="Write an array to a file.")
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Loop iterations a host thread may run.")] = MAX_STEPS,
    max_findings: Annotated[int, typer.Option(min=0, help="Findings to print; all are counted.")] = 100,
    form: Annotated[Format, typer.Option("--format", help="How the result is printed.")] = Format.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object: --format json.")] = False,
) -> int:
    """Run a CUDA, Triton or PTX file on the virtual GPU, as its launch lines say.

    Exit codes: 0 clean, 1 findings, 2 usage or compile error, 3 unsupported.
    """
    inputs, chosen, targets = files("--input", given), sizes(size), files("--save", save)
    watch = watch_for(name for names in tool or [] for name in names.split(","))
    with draft_shown(source):
        kernel = load(
            source,
            gpu=gpu,
            arch=arch,
            defines=macros(define),
            include_dirs=include or [],
            launch=launch,
            compiler=compiler,
        )
    say_host_code(kernel)
    chosen = {**shape_sizes(kernel, shape), **chosen}
    _check_targets(kernel, targets)
    arrays = {name: _read(file) for name, file in inputs.items()}
    device = VirtualGPU(kernel.gpu, mode=mode.value, threads=threads, schedule=schedule)
    with waiting(f"compiling {source}"):
        binaries = kernel.binaries(arrays, sizes=chosen).values()
    for diagnostic in dict.fromkeys(diagnostic for binary in binaries for diagnostic in binary.diagnostics):
        print(diagnostic, file=sys.stderr)
    with waiting(f"compiling for this host and running {source}"):
        outcome, results = kernel.run(device, arrays, sizes=chosen, seed=seed, watch=watch, max_steps=max_steps)
    for name, file in targets.items():
        _write(file, results[name])
    summaries = [summarise(line.name, results[line.name]) for line in kernel.outputs]
    if as_json or form is Format.JSON:
        print(json.dumps(_record(kernel, outcome, summaries, mode), indent=2))
    elif form is Format.SARIF:
        print(json.dumps(sarif(outcome.findings, outcome.suppressed), indent=2))
    elif form is Format.GITHUB:
        for line in github_lines(outcome.findings, limit=max_findings):
            print(line)
        print(summary(outcome.findings, outcome.suppressed))
    else:
        _show(kernel, outcome, summaries, mode, max_findings)
    return 0 if outcome.clean else 1


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


def _show(kernel: KernelFile, run: Run, summaries: list[ArraySummary], mode: Mode, limit: int) -> None:
    if run.printed:
        print(run.printed, end="" if run.printed.endswith("\n") else "\n")
    if summaries:
        print_table(ArraySummary.COLUMNS, [array.row() for array in summaries])
    for line in text_lines(run.findings, limit=limit):
        print(line)
    print(f"source {run.source_digest[:16]} · PTX {run.ptx_digest[:16]}")
    if run.defines:
        print("defines " + " ".join(f"{name}={value}" for name, value in run.defines.items()))
    counted = {name: value for name, value in run.counters.items() if name != "inst_executed"}
    if counted:
        print(" · ".join(f"{name} {value}" for name, value in counted.items()))
    verdict = "clean" if run.clean else f"{len(run.findings)} finding{'s'[: len(run.findings) > 1]}"
    launches = f"{len(run.entries)} of {len(kernel.launches)} launches" if len(kernel.launches) > 1 else "1 launch"
    ran = f"{launches}, {run.instructions} warp instructions, {kernel.arch} {mode.value}"
    print(f"{kernel.path}: {verdict} · {ran}")
    print_line(summary(run.findings, run.suppressed))


def _record(kernel: KernelFile, run: Run, summaries: list[ArraySummary], mode: Mode) -> dict[str, object]:
    return {
        "source": kernel.path,
        "clean": run.clean,
        "arch": kernel.arch,
        "mode": mode.value,
        "entries": run.entries,
        "printed": run.printed,
        "outputs": [array.record() for array in summaries],
        "findings": [finding_record(finding) for finding in run.findings],
        "suppressed": [suppressed_record(item) for item in run.suppressed],
        "instructions": run.instructions,
        "counters": dict(run.counters),
        "source_digest": run.source_digest,
        "ptx_digest": run.ptx_digest,
        "defines": dict(run.defines),
    }


def summarise(name: str, array: Array) -> ArraySummary:
    """Figures of one array, in double precision; integers keep theirs."""
    element = _NAMES[array.dtype]
    if array.dtype.kind in "iub":
        wide, nan_count = array.reshape(-1), 0
    else:
        floats = array.astype(np.float64).reshape(-1)
        wide = floats[~np.isnan(floats)]
        nan_count = floats.size - wide.size
    if not wide.size:
        return ArraySummary(name, element, array.shape, None, None, None, nan_count)
    least, most = wide.min().item(), wide.max().item()
    with np.errstate(invalid="ignore"):  # +inf and -inf have no mean
        mean = float(wide.mean(dtype=np.float64))
    return ArraySummary(name, element, array.shape, int_or_float(least), int_or_float(most), mean, nan_count)


def int_or_float(value: float | int | bool) -> float | int:
    """A bool counts as 0 or 1."""
    return int(value) if isinstance(value, bool) else value


def _figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _json(value: float | int | None) -> float | int | str | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
