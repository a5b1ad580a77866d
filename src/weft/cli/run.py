"""`weft run`: a CUDA file with launch lines, on the virtual GPU."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from weft.core.errors import UsageError
from weft.core.records import Finding, Run
from weft.engines.arguments import Array
from weft.engines.array_summary import ArraySummary, summarise
from weft.engines.kernel_file import KernelFile, NoLaunchLines, load
from weft.engines.virtual import VirtualGPU
from weft.probes import InitCheck, Probes, RaceCheck, Wavefronts
from weft.probes.shared_probe import SharedProbe
from weft.vm.launch import PLAIN

from .options import files, macros, sizes
from .tables import print_table


class Mode(StrEnum):
    """Tensor-core arithmetic."""

    HARDWARE = "hardware"
    IEEE = "ieee"


class Probe(StrEnum):
    """What can watch a run."""

    INIT = "init"
    RACE = "race"
    WAVEFRONTS = "wavefronts"


PROBES: Mapping[Probe, Callable[[], SharedProbe]] = {
    Probe.INIT: InitCheck,
    Probe.RACE: RaceCheck,
    Probe.WAVEFRONTS: Wavefronts,
}


def run(
    source: Annotated[Path, typer.Argument(help="A CUDA C++ file with launch lines.", dir_okay=False)],
    size: Annotated[list[str] | None, typer.Option("--size", metavar="S=N", help="Set a size.")] = None,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="K=V", help="Define a macro.")] = None,
    include: Annotated[list[str] | None, typer.Option("-I", metavar="DIR", help="Find includes.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the generated inputs.")] = 0,
    arch: Annotated[str, typer.Option(help="The GPU's architecture.")] = "sm_89",
    mode: Annotated[Mode, typer.Option(help="Tensor cores: as the silicon rounds, or plain fp32.")] = Mode.HARDWARE,
    threads: Annotated[int | None, typer.Option(min=1, help="Host threads (default: all).")] = None,
    schedule: Annotated[int, typer.Option(min=0, help="Another order of CTAs and warps.")] = 0,
    watch: Annotated[
        list[Probe] | None, typer.Option("--watch", help="Look out for shared-memory trouble; may be repeated.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--input", metavar="A=FILE.npy", help="Take an array from a file.")
    ] = None,
    save: Annotated[
        list[str] | None, typer.Option("--save", metavar="A=FILE.npy", help="Write an array to a file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Run a CUDA file on the virtual GPU, as its launch lines say.

    Exit codes: 0 clean, 1 findings, 2 usage or compile error, 3 unsupported.
    """
    inputs, chosen, targets = files("--input", given), sizes(size), files("--save", save)
    kernel = _load(source, arch, macros(define), include or [])
    _check_targets(kernel, targets)
    arrays = {name: _read(file) for name, file in inputs.items()}
    gpu = VirtualGPU(arch.rstrip("af"), mode=mode.value, threads=threads, schedule=schedule)
    with _progress(f"compiling {source}"):
        binary = kernel.compile(arrays, sizes=chosen)
    for diagnostic in binary.diagnostics:
        print(diagnostic, file=sys.stderr)
    with _progress(f"compiling for this host and running {source}"):
        probes = Probes(*(PROBES[name]() for name in dict.fromkeys(watch))) if watch else PLAIN
        outcome, results = kernel.run(gpu, arrays, sizes=chosen, seed=seed, watch=probes)
    for name, file in targets.items():
        _write(file, results[name])
    summaries = [summarise(line.name, results[line.name]) for line in kernel.outputs]
    if as_json:
        print(json.dumps(_record(kernel, outcome, summaries, mode), indent=2))
    else:
        _show(kernel, outcome, summaries, mode)
    return 0 if outcome.clean else 1


def _load(source: Path, arch: str, defines: Mapping[str, str], include: list[str]) -> KernelFile:
    try:
        return load(source, arch=arch, defines=defines, include_dirs=include)
    except NoLaunchLines as error:
        print(error.draft, file=sys.stderr)
        raise UsageError(
            f"{source} has no `// weft: launch` line; the lines above are a draft to put at its head"
        ) from error


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


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    """A line that moves, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(text):
        yield


def _show(kernel: KernelFile, run: Run, summaries: list[ArraySummary], mode: Mode) -> None:
    if run.printed:
        print(run.printed, end="" if run.printed.endswith("\n") else "\n")
    if summaries:
        print_table(ArraySummary.COLUMNS, [summary.row() for summary in summaries])
    for finding in run.findings:
        print(f"{finding} · {finding.count} times" if finding.count > 1 else finding)
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


def _record(kernel: KernelFile, run: Run, summaries: list[ArraySummary], mode: Mode) -> dict[str, object]:
    return {
        "source": kernel.path,
        "clean": run.clean,
        "arch": kernel.arch,
        "mode": mode.value,
        "entries": run.entries,
        "printed": run.printed,
        "outputs": [summary.record() for summary in summaries],
        "findings": [_finding(finding) for finding in run.findings],
        "instructions": run.instructions,
        "counters": dict(run.counters),
        "source_digest": run.source_digest,
        "ptx_digest": run.ptx_digest,
        "defines": dict(run.defines),
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "message": finding.message,
        "file": finding.place.file if finding.place else None,
        "line": finding.place.line if finding.place else None,
        "ptx_line": finding.ptx_line,
        "cta": finding.cta,
        "warp": finding.warp,
        "lanes": finding.lanes,
        "address": finding.address,
        "count": finding.count,
    }
