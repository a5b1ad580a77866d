"""Run a command as if the journal were not there, and keep what it printed."""

import codecs
import contextlib
import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from weft.core.errors import UsageError

from .records import CommandRun, ShapeResult
from .results import last_line, plain, shape_results, tail

_KEPT_CHARACTERS = 4_000_000
"""Of the output: enough for any JSON of ours, no danger to memory."""


@dataclass(frozen=True)
class Watched:
    """How it ended."""

    run: CommandRun
    shapes: tuple[ShapeResult, ...]


def watch(words: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> Watched:
    """Output appears as it comes, on a terminal as on a terminal; standard error and input are the command's own."""
    began = clock()
    text, status = _run(_resolved(words))
    shown = plain(text)
    run = CommandRun(tuple(words), status, round(clock() - began, 3), last_line(shown), tail(shown))
    return Watched(run, shape_results(shown))


def kind_of(words: Sequence[str]) -> str:
    """The verb of weft, or `command`."""
    verbs = [word for word in words[1:] if not word.startswith("-")]
    return verbs[0] if os.path.basename(words[0]) == "weft" and verbs else "command"


def shown_command(words: Sequence[str]) -> str:
    return shlex.join(words)


def _resolved(words: Sequence[str]) -> list[str]:
    """`weft` is this weft, whatever PATH says."""
    return [sys.executable, "-m", "weft", *words[1:]] if words[0] == "weft" else list(words)


def _run(words: list[str]) -> tuple[str, int]:
    terminal = sys.stdout.isatty()
    reading, writing = pty.openpty() if terminal else os.pipe()
    if terminal:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(writing, termios.TIOCSWINSZ, size)
    sys.stdout.flush()
    with _interrupts_left_to_the_command():
        try:
            child = subprocess.Popen(words, stdout=writing)
        except OSError as error:
            os.close(reading)
            raise UsageError(f"{words[0]} cannot be run: {error.strerror}") from error
        finally:
            os.close(writing)
        with os.fdopen(reading, "rb", buffering=0) as stream:
            text = _copy(stream)
        status = child.wait()
    return text, status if status >= 0 else 128 - status


@contextlib.contextmanager
def _interrupts_left_to_the_command() -> Iterator[None]:
    """Ctrl-C reaches both; the command decides what it means, and the journal lives to write it down."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _copy(stream: BinaryIO) -> str:
    """To standard output until the command closes its own."""
    kept: list[str] = []
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    room = _KEPT_CHARACTERS
    while True:
        try:
            chunk = stream.read(1 << 16)
        except OSError:  # a pseudo-terminal whose other side is closed
            break
        if not chunk:
            break
        piece = decoder.decode(chunk)
        sys.stdout.write(piece)
        sys.stdout.flush()
        kept.append(piece)
        room -= len(piece)
        while room < 0 and len(kept) > 1:  # the end is what is read back
            room += len(kept.pop(0))
    return "".join(kept)
