"""A child starts no process; a program that it needs is run in another child, which becomes that program.

Today it is NVIDIA's disassembler. The child sends code and options to the supervisor in place of an answer; the
supervisor has the fork server make the other child, under the same layers, and sends back what the program printed.
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
"""The field of a frame that asks for it: its options."""


def disassemblers() -> tuple[Path, ...]:
    """Its path, where it is installed."""
    try:
        return (disassembler(),)
    except ToolMissing:
        return ()


def ask_disassembler(connection: socket.socket, cubin: bytes, options: Sequence[str]) -> str:
    """In the child that needs it. Raises ToolMissing, WeftError."""
    send(connection, Frame({NEEDED: list(options)}, {"cubin": np.frombuffer(cubin, np.uint8)}))
    fields = receive(connection).fields
    if "error" in fields:
        raise WeftError(str(fields["error"]))
    return str(fields["text"])


def run_disassembler(connection: socket.socket, folder: Path, programs: Sequence[Path]) -> NoReturn:
    """In the child that becomes it; the connection stays open as long as it runs."""
    question = receive(connection)
    options = question.fields[NEEDED]
    if not programs or not set(options) <= set(OPTIONS):
        raise WeftError(f"no disassembler that takes {options}")
    path = folder / "code.cubin"
    path.write_bytes(question.arrays["cubin"].tobytes())
    os.set_inheritable(connection.fileno(), True)
    os.execv(programs[0], [str(programs[0]), *options, str(path)])
