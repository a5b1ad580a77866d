"""Run a command unchanged, and read its last line and each shape's result from its output."""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
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

from .kernel_versions import commit_of, kernels_of, with_estimates
from .records import CommandRun, ShapeResult

_KEPT_CHARACTERS = 4_000_000
"""Limit of kept output: enough for any JSON of Weft, and a bound on memory."""

TAIL_LINES = 40
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07")
_MAX_LINE = 400
"""Limit of a line in the journal: a JSON document on one line is too long."""


@dataclass(frozen=True)
class Watched:
    """The result of the command."""

    run: CommandRun
    shapes: tuple[ShapeResult, ...]


def watch(words: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> Watched:
    """Run the command. Its output appears at once, as on a terminal if there is one; other streams are untouched."""
    kernels = kernels_of(words)  # read before the run: the command may change them
    commit, began = commit_of(kernels), clock()
    text, status = _run(_resolved(words))
    shown = plain(text)
    run = CommandRun(
        tuple(words),
        status,
        round(clock() - began, 3),
        last_line(shown),
        tail(shown),
        commit,
        with_estimates(kernels, shown),
    )
    return Watched(run, shape_results(shown))


def kind_of(words: Sequence[str]) -> str:
    """Return the verb of weft, or `command`."""
    verbs = [word for word in words[1:] if not word.startswith("-")]
    return verbs[0] if os.path.basename(words[0]) == "weft" and verbs else "command"


def shown_command(words: Sequence[str]) -> str:
    return shlex.join(words)


def _resolved(words: Sequence[str]) -> list[str]:
    """Replace `weft` by this installation of Weft, whatever is on PATH."""
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
    """Ignore Ctrl-C in this process: the command handles it, and the journal can still record the result."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _copy(stream: BinaryIO) -> str:
    """Copy to standard output until the command closes the stream; return the end of the text."""
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
        while room < 0 and len(kept) > 1:  # only the end is needed
            room += len(kept.pop(0))
    return "".join(kept)


def plain(text: str) -> str:
    """Return the text without colours; of an overwritten line, only the final state."""
    lines = _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


def last_line(text: str) -> str:
    """Return the summary, which is the last line of every verb."""
    document = _json(text)
    if document is not None:
        shapes = shape_results(text)
        return "; ".join(f"{each.shape}: {each.text}" for each in shapes) or "a JSON document"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # `ERROR SUMMARY`, as in compute-sanitizer, only counts errors; the line above it has the subject.
    if lines[1:] and lines[-1].startswith("ERROR SUMMARY"):
        lines[-1] = f"{lines[-2]} · {lines[-1]}"
    return lines[-1][:_MAX_LINE] if lines else ""


def tail(text: str) -> str:
    return "\n".join(line[:_MAX_LINE] for line in text.strip("\n").splitlines()[-TAIL_LINES:])


def shape_results(text: str) -> tuple[ShapeResult, ...]:
    """Return the results of `weft check` from its table or its JSON; nothing if the output is neither."""
    document = _json(text)
    return tuple(_from_table(text.splitlines()) if document is None else _from_json(document))


def _json(text: str) -> object:
    """Return the JSON document, or None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        document: object = json.loads(text)
    except ValueError:
        return None
    return document


def _from_json(document: object) -> Iterator[ShapeResult]:
    """Yield the results of `weft check --json` (docs/reference/verdict_json.md); nothing for another document."""
    try:
        found = document["targets"] if isinstance(document, dict) else {}
        targets = {
            str(target): [row for row in rows["verdicts"] if not (row["debug_build"] or row.get("large_sizes"))]
            for target, rows in found.items()
        }
        shapes = {target: dict.fromkeys(row["workload"]["shape"] for row in rows) for target, rows in targets.items()}
    except (AttributeError, KeyError, TypeError):
        return
    for target, rows in targets.items():
        for shape in shapes[target]:
            here = [row for row in rows if row["workload"]["shape"] == shape]
            passed = sum(row["status"] == "PASSED" for row in here)
            failures = dict.fromkeys(str(row["status"]) for row in here if row["status"] != "PASSED")
            said = f"{passed} of {len(here)}" + (f" ({', '.join(failures)})" if failures else "")
            yield ShapeResult(str(shape), f"{target} {said}" if len(targets) > 1 else said)


def _from_table(lines: Sequence[str]) -> Iterator[ShapeResult]:
    """Yield the rows under the header `shape`: tab-separated from a pipe, drawn from a terminal."""
    rows = [(line, _cells(line)) for line in lines]
    for at, (_, header) in enumerate(rows):
        if header[:1] != ["shape"] or len(header) < 2:
            continue
        for line, cells in rows[at + 1 :]:
            if len(cells) == len(header):
                texts = [
                    f"{name} {cell}" if header[2:] else cell for name, cell in zip(header[1:], cells[1:], strict=True)
                ]
                yield ShapeResult(cells[0], ", ".join(texts))
            elif not re.fullmatch(r"[\s┡╇┩━├┼┤─└┴┘╪╞╡═]+", line):
                return
        return


def _cells(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return [cell.strip() for cell in re.split("[│┃]", line.strip())[1:-1]]
