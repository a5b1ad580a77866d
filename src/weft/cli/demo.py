"""`weft demo`: check a wrong kernel, find the faulty line, fix it, check again."""

import contextlib
import io
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from weft.core.errors import WeftError
from weft.kernels.ladder import RUNGS

from .terminal import console, meaning

RUNG = "wmma"
FILE = "attention.cu"
RIGHT = "for (int column = lane; column < H::COLUMNS; column += 32) sU[row][column] *= rescale;"
WRONG = "if (lane == 0) sU[row][0] *= rescale;"
CHECK = f"weft check {FILE} --shapes ragged --regimes unit_normal --masks none,top_left --seeds 1"
DIAGNOSE = f"weft diagnose {FILE}"
WIDTH = 118


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep the kernel in this folder (default: it is removed).")
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the session as a picture.")] = None,
) -> int:
    """Check a wrong attention kernel, find the faulty line, fix it, and check again. Takes less than a minute."""
    shown = console(record=svg is not None, width=WIDTH if svg is not None else None)
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(contextlib.chdir(folder))
        for line in _story():
            shown.print(line, soft_wrap=svg is None)  # a picture cuts lines that are too long
    shown.print(f"\nfound and fixed in {time.perf_counter() - start:.0f} s, without a GPU", style="heading")
    if svg is not None:
        shown.save_svg(str(svg), title="weft demo")
    return 0


def _story() -> Iterator[Text]:
    right = RUNGS[RUNG].path.read_text()
    _require(right.count(RIGHT) == 1, f"{RUNG}.cu has changed: the demo's line is not in it")
    Path(FILE).write_text(right.replace(RIGHT, WRONG))
    yield _said(f"{FILE} computes attention on tensor cores (the rung `{RUNG}`). One line is wrong: the output U")
    yield _said("must be rescaled whenever a row's maximum rises, but only its first column is rescaled.\n")
    yield from _command(CHECK, expected=1)
    yield _said("\nThe result is wrong. Which line is at fault?\n")
    yield from _command(DIAGNOSE, expected=1)
    yield _said("\nFix that line:\n")
    yield Text(f"- {WRONG}", style="bad")
    yield Text(f"+ {RIGHT}\n", style="good")
    Path(FILE).write_text(right)
    yield from _command(CHECK, expected=0)


def _command(line: str, *, expected: int) -> Iterator[Text]:
    """Yield what a command prints. Raise an error if its exit code is not `expected`."""
    from .main import main

    yield Text(f"$ {line}", style="command")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(shlex.split(line)[1:])
    for shown in printed.getvalue().splitlines():
        yield _coloured(shown)
    _require(code == expected, f"`{line}` ended with {code}, not {expected}")


def _coloured(line: str) -> Text:
    shown = Text.from_ansi(line)  # plain, unless FORCE_COLOR is set
    shown.stylize(meaning(shown.plain))
    return shown


def _said(line: str) -> Text:
    return Text(line, style="italic")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise WeftError(message)
