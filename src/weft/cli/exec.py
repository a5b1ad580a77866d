"""`weft exec`: run a program whose CUDA driver calls go to the virtual GPU."""

import json
import os
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.core import knobs
from weft.core.chips import Chip, chip_of, choose_gpu
from weft.core.errors import UsageError
from weft.driver.description import device_line
from weft.driver.program import environment, library_folder, listen, start, wait

from .options import ARCH_HELP, GPU_HELP, Mode

if TYPE_CHECKING:
    from weft.profile.clock import ModelClock

WINDOW_GRANULE = 1 << 21
MOST_WATCHED_BYTES = 1 << 32
"""Checkers keep records for every byte up to the last that is used."""

# Arguments after the program belong to the program.
_SETTINGS = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False, "ignore_unknown_options": False}
app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)


class TimeSource(StrEnum):
    """What events of the program measure."""

    HOST = "host"
    MODEL = "model"


class OnFinding(StrEnum):
    """What a finding does that a GPU would fault on."""

    RAISE = "raise"
    REPORT = "report"


@app.command("exec")
def exec_program(
    program: Annotated[str, typer.Argument(help="A program: an executable, `python`, `pytest`.")],
    args: Annotated[list[str] | None, typer.Argument(help="The program's arguments.")] = None,
    gpu: Annotated[str, typer.Option(help=f"{GPU_HELP} Several: l4,l4.")] = "",
    arch: Annotated[str, typer.Option(help=ARCH_HELP)] = "",
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            "--tools",
            metavar="T,T",
            help="Optional checkers: initcheck, racecheck, all; memcheck and synccheck are always on.",
        ),
    ] = None,
    findings: Annotated[
        OnFinding, typer.Option(help="A faulting access fails the program's calls, or is skipped and reported.")
    ] = OnFinding.RAISE,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Return an error code for what is not supported, and go on.")
    ] = False,
    suppress: Annotated[
        list[str] | None, typer.Option(metavar="CODE,CODE", help="Findings that do not count, such as R103.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every driver call with arguments and result.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    sarif_file: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write findings as SARIF.")] = None,
    memory: Annotated[float, typer.Option(min=0, help="Device memory in GiB (default: the GPU's).")] = 0.0,
    clock: Annotated[
        TimeSource, typer.Option(help="Events hold the host's time, or the model's estimate of the kernels.")
    ] = TimeSource.HOST,
    mode: Annotated[Mode, typer.Option(help="Tensor cores: round like the hardware, or plain fp32.")] = Mode.HARDWARE,
    threads: Annotated[int | None, typer.Option(min=1, help="Host threads (default: all).")] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Limit of loop iterations of a launch.")] = 1 << 28,
) -> int:
    """Run a program unchanged: its calls of the CUDA driver go to the virtual GPU, with all checkers, without a GPU.

    Exit codes: the program's own if it is not 0; else 3 if something was refused, 1 findings, 0.
    """
    library = library_folder()
    chips = [chip_of(choose_gpu(name, arch)) for name in gpu.split(",")]
    memory_bytes = int((memory or min(chip.dram_gib for chip in chips)) * 2**30) // WINDOW_GRANULE * WINDOW_GRANULE
    tools = [name for names in tool or [] for name in names.split(",")]
    if clock is TimeSource.MODEL and tools:
        raise UsageError("--clock model counts kernels without optional checkers: use it without --tools")
    if len(chips) > 1 and (tools or clock is TimeSource.MODEL) and memory_bytes * len(chips) > MOST_WATCHED_BYTES:
        raise UsageError("checkers and --clock model watch 4 GiB of several GPUs' memory: give each less by --memory")
    command = [program, *(args or [])]
    described = [device_line(chip, memory_bytes, number) for number, chip in enumerate(chips)]
    with tempfile.TemporaryDirectory(prefix="weft-exec-") as folder:
        path = os.path.join(folder, "driver")
        # The program starts first: loading the virtual GPU takes about as long as the program needs to its first call.
        listening = listen(path)
        child = start(command, environment(library, path, trace, "\n".join(described)))
        try:
            from weft.driver.records import Options
            from weft.driver.report import Report
            from weft.driver.serve import Server
            from weft.vm.launch import PLAIN

            watch = PLAIN
            if tools:  # the optional checkers take as long to load as all the rest
                from weft.probes.tools import watch_for

                watch = watch_for(tools)
            report = Report(suppress=[code for codes in suppress or [] for code in codes.split(",")])
            options = Options(
                chips[0],
                memory_bytes,
                watch,
                threads or knobs.threads(),
                max_steps,
                mode.value,
                raises=findings is OnFinding.RAISE,
                keep_going=keep_going,
                others=tuple(chips[1:]),
                clock=_model_clock(chips[0]) if clock is TimeSource.MODEL else None,
            )
            server = Server(listening, options, report)
            server.start()
            own = wait(child)
            server.close()
        finally:
            child.kill()  # does nothing to a program that has ended
    report.finish()
    _write(json_file, report.record(command, own))
    _write(sarif_file, report.sarif())
    return report.exit_code(own)


def _model_clock(chip: Chip) -> "ModelClock":
    from weft.profile.clock import ModelClock

    return ModelClock(chip)


def _write(file: Path | None, record: Mapping[str, object]) -> None:
    if file is None:
        return
    try:
        file.write_text(json.dumps(record, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error}") from error
