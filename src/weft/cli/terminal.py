"""Colours, widths and progress bars of a terminal; only this file decides them. A pipe gets plain text.

NO_COLOR turns every style off (https://no-color.org); FORCE_COLOR turns them on for a pipe; NO_COLOR wins.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from weft.core import knobs

if TYPE_CHECKING:
    from rich.console import Console

Row = TypeVar("Row")
Tell = Callable[[int, int], None]
"""Called with the number of finished items and the total."""

STYLES = {
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "command": "bold cyan",
    "heading": "bold",
    "aside": "dim",
}
"""Meaning → style."""

FIRST_LINE_SECONDS, NEXT_LINE_SECONDS = 1.0, 10.0
"""Seconds until the first progress line in a pipe."""
_BAD = ("INCORRECT", "actual", "first wrong", "made by", "ERROR SUMMARY: ")
_GOOD = ("right ", "cure", " passed in", "expected")


def console(*, stderr: bool = False, **options: Any) -> "Console":
    """Return a console on standard output, or on standard error, with Weft's styles."""
    from rich.console import Console
    from rich.theme import Theme

    if knobs.no_color():
        options["color_system"] = None  # rich's no_color would keep bold and italic
    return Console(stderr=stderr, theme=Theme(STYLES), highlight=False, **options)


def styled(stream: TextIO) -> bool:
    """Return whether text for this stream gets styles."""
    return not knobs.no_color() and (stream.isatty() or knobs.force_color())


def paint(text: str, meaning: str, stream: TextIO | None = None) -> str:
    """Return the text in a style of STYLES, if the stream (default: standard output) gets styles."""
    if not styled(stream or sys.stdout):
        return text
    from rich.style import Style

    return Style.parse(STYLES[meaning]).render(text)


def meaning(line: str) -> str:
    """Return the style of a line of output; empty: none."""
    if ": 0 errors, 0 warnings" in line or any(word in line[:24] for word in _GOOD):
        return "good"
    return "bad" if any(word in line for word in _BAD) else ""


def print_line(line: str) -> None:
    """Print a line of output in the style of its meaning."""
    style = meaning(line)
    print(paint(line, style) if style else line)


@contextlib.contextmanager
def _said_in_lines(text: str) -> Iterator[Callable[[str], None]]:
    """Print the current step as a plain line to standard error after a while and then from time to time; nothing if
    WEFT_PROGRESS=0."""
    if not knobs.progress_in_pipes():
        yield lambda what: None
        return
    now, ended, start = [text], threading.Event(), time.monotonic()

    def say() -> None:
        pause = FIRST_LINE_SECONDS
        while not ended.wait(pause):
            print(f"weft: {now[0]} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
            pause = NEXT_LINE_SECONDS

    def tell(what: str) -> None:
        now[0] = what

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def waiting(text: str, *, long: bool = False) -> Iterator[Callable[[str], None]]:
    """Show a spinner during work of unknown length; yield a function that sets its text. A pipe gets plain lines if
    the work is `long`, else nothing.
    """
    if not sys.stderr.isatty():
        with _said_in_lines(text) if long else contextlib.nullcontext(lambda what: None) as tell:
            yield tell
        return
    with console(stderr=True).status(text) as status:
        yield status.update


@contextlib.contextmanager
def bar(text: str) -> Iterator[Tell]:
    """Show a progress bar, which disappears at the end; yield a function that updates it. A pipe gets plain lines."""
    if not sys.stderr.isatty():
        with _said_in_lines(text) as tell_line:
            yield lambda done, whole: tell_line(f"{text}: {done} of {whole}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        shown = progress.add_task(text, total=None)
        yield lambda done, whole: progress.update(shown, completed=done, total=whole)


def counted(rows: Sequence[Row], text: str) -> Iterator[Row]:
    """Yield the rows, with a bar of how many are done."""
    with bar(text) as tell:
        for done, row in enumerate(rows):
            tell(done, len(rows))
            yield row


def say_error(message: str) -> None:
    """Print `weft: message` to standard error, as one line."""
    head = paint("weft:", "bad", sys.stderr)
    print(head, " ".join(message.splitlines()), file=sys.stderr)
