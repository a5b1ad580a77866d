"""`weft triton`: run a Python script: its Triton kernels run on the virtual GPU, its CUDA tensors are on the CPU."""

import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from weft.core.distribution import install_command
from weft.core.errors import ToolMissing, UsageError, WeftError

from .options import Mode

EXIT_WRONG = 1

# Arguments after the script belong to the script.
_SETTINGS = {"help_option_names": ["-h", "--help"], "allow_interspersed_args": False, "ignore_unknown_options": False}
app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_SETTINGS)


@app.command("triton")
def triton(
    script: Annotated[Path, typer.Argument(help="A Python script.", dir_okay=False)],
    args: Annotated[list[str] | None, typer.Argument(help="The script's arguments.")] = None,
    gpu: Annotated[str, typer.Option(help="The GPU to compile for, such as a100, rtx3090, l4.")] = "l4",
    check: Annotated[bool, typer.Option("--check", help="Turn on all checkers: initcheck and racecheck, too.")] = False,
    tool: Annotated[
        list[str] | None, typer.Option(metavar="T,T", help="Turn on these checkers: initcheck, racecheck.")
    ] = None,
    mode: Annotated[Mode, typer.Option(help="Tensor cores: round like the hardware, or plain fp32.")] = Mode.HARDWARE,
    threads: Annotated[int | None, typer.Option(min=1, help="Host threads (default: all).")] = None,
) -> int:
    """Run a Python script with its arguments: Triton kernels run on the virtual GPU, CUDA tensors are CPU tensors.

    Exit codes: the script's; 1 findings or an exception, 2 usage error, 3 unsupported.
    """
    try:
        import weft.triton as virtual
    except ImportError as error:
        raise ToolMissing(f"Triton and PyTorch are needed ({error}): {install_command('triton', 'torch')}") from error
    if not script.is_file():
        raise UsageError(f"there is no file {script}")
    tools = [name for names in tool or [] for name in names.split(",")]
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *(args or [])]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with virtual.on(gpu, check=check, tools=tools, cuda=True, mode=mode, threads=threads):
            runpy.run_path(str(script), run_name="__main__")
    except virtual.KernelFindings as error:
        print(f"{_launched_at(error, script)}: launch of {error}", file=sys.stderr)
        return EXIT_WRONG
    except WeftError:
        raise
    except Exception as error:
        _show(error, script)
        return EXIT_WRONG
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0


def _frames(error: BaseException, script: Path) -> list[traceback.FrameSummary]:
    """Return the frames from the script's first one on."""
    frames = list(traceback.extract_tb(error.__traceback__))
    first = next((at for at, frame in enumerate(frames) if Path(frame.filename) == script), 0)
    return frames[first:]


def _launched_at(error: BaseException, script: Path) -> str:
    """Return the innermost line outside Triton and Weft."""
    import triton as library

    ours = tuple(str(Path(given).parent) for given in (__file__, library.__file__ or ""))
    ours = (str(Path(ours[0]).parent), ours[1])
    frames = [frame for frame in _frames(error, script) if not frame.filename.startswith(ours)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(script)


def _show(error: Exception, script: Path) -> None:
    lines = traceback.format_list(_frames(error, script)) + traceback.format_exception_only(error)
    print("Traceback (most recent call last):\n" + "".join(lines), end="", file=sys.stderr)
