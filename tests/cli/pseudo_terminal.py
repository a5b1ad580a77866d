"""Run a command on a pseudo-terminal of a given width and return its output with control codes."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 120


def on_terminal(
    command: Sequence[str], *, columns: int, environment: Mapping[str, str] = {}, cwd: Path | None = None
) -> tuple[int, str]:
    """Return the exit code and the output, standard error included. COLUMNS is not set: the terminal has the width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "CI")}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        variables.pop(name, None)
    variables |= {"TERM": "xterm-256color", **environment}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables, cwd=cwd)
    os.close(theirs)
    written = bytearray()
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            ready, _, _ = select.select([ours], [], [], 0.2)
            try:
                got = os.read(ours, 65536) if ready else None
            except OSError:  # Linux raises this when the other end is closed
                break
            if got == b"":
                break
            written += got or b""
        return process.wait(timeout=10), written.decode(errors="replace").replace("\r\n", "\n")
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def weft(*args: str) -> list[str]:
    """Return the command for `weft` with these arguments, in this interpreter."""
    return [sys.executable, "-m", "weft", *args]
