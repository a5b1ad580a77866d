"""A child starts no process; a program that it needs runs in another child, which becomes that program.

The only program is NVIDIA's disassembler. The child sends code and options to the supervisor instead of an answer;
the fork server forks the other child, with the same isolation, and the supervisor returns what the program printed.
"""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from weft.core.errors import ToolMissing, WeftError
from weft.toolchain.sass import OPTIONS, disassembler

from .frames import Frame, receive, send

NEEDED = "disassemble"
"""The field of a frame that requests the disassembler; its value are the options."""


def disassemblers() -> tuple[Path, ...]:
    """Return the path of the disassembler, if it is installed."""
    try:
        return (disassembler(),)
    except ToolMissing:
        return ()


def ask_disassembler(connection: socket.socket, cubin: bytes, options: Sequence[str]) -> str:
    """Request the disassembler, in the child that needs it. Raises ToolMissing, WeftError."""
    send(connection, Frame({NEEDED: list(options)}, {"cubin": np.frombuffer(cubin, np.uint8)}))
    fields = receive(connection).fields
    if "error" in fields:
        raise WeftError(str(fields["error"]))
    return str(fields["text"])


def run_disassembler(connection: socket.socket, folder: Path, programs: Sequence[Path]) -> NoReturn:
    """Become the disassembler, in the other child; the connection stays open as long as it runs."""
    question = receive(connection)
    options = question.fields[NEEDED]
    if not programs or not set(options) <= set(OPTIONS):
        raise WeftError(f"no disassembler accepts {options}")
    path = folder / "code.cubin"
    path.write_bytes(question.arrays["cubin"].tobytes())
    os.set_inheritable(connection.fileno(), True)
    os.execv(programs[0], [str(programs[0]), *options, str(path)])
