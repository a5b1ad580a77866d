"""Requests and answers between the stand-in driver in the program's process and the server: heads and blobs.

`shim/shim.h` has the same structs. Both run on one machine, so numbers have its byte order. Every size is checked
before memory is taken for it.
"""

import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from weft.core.errors import WeftError

VERSION = 2
LARGEST_BLOB = 1 << 31
MOST_RANGES = 512
POLL_S = 100e-6 if (os.cpu_count() or 1) > 1 else 0.0
"""How long the server polls for the next request before it blocks; `shim/wire.c` polls for the answer."""
_REQUEST = struct.Struct("=II8QQ")
_ANSWER = struct.Struct("=II4QQQ")
_RANGE = struct.Struct("=QQ")


class Kind(IntEnum):
    """What a request asks for."""

    HELLO = 1
    ALLOCATE = 2
    RELEASE = 3
    LOAD = 4
    UNLOAD = 5
    FIND_FUNCTION = 6
    FIND_SYMBOL = 7
    LAUNCH = 8
    OCCUPANCY = 9
    LINK_IMAGES = 10
    NOTE = 11
    REFUSE = 12
    SHOW = 13
    BYE = 14
    SET_HEAP = 15
    TENSOR_MAP = 16


class Code(IntEnum):
    """CUresult: the codes that the server returns."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    INVALID_IMAGE = 200
    NO_BINARY_FOR_GPU = 209
    INVALID_PTX = 218
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    ILLEGAL_ADDRESS = 700
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_TIMEOUT = 702
    ASSERT = 710
    MISALIGNED_ADDRESS = 716
    INVALID_PC = 718
    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801


class ProtocolError(WeftError):
    """The other side sent something that is no request; the connection is closed."""


class Closed(Exception):
    """The other side closed the connection between two requests."""


@dataclass(frozen=True)
class Request:
    """One request."""

    kind: Kind
    arguments: tuple[int, ...]
    written: tuple[tuple[int, int], ...]
    """Address and size of what copies and memsets wrote since the last request."""
    blob: bytes


@dataclass(frozen=True)
class Answer:
    """What the program gets back."""

    code: int = Code.SUCCESS
    values: tuple[int, ...] = ()
    text: str = ""
    """What kernels printed: the program writes it to its standard output."""
    blob: bytes = b""
    stop: bool = False
    """End the program with exit code 3."""


def receive_request(connection: socket.socket) -> Request:
    """Read one request. Raises Closed at the end, ProtocolError for one that is malformed."""
    _poll(connection)
    kind, ranges, *arguments, blob_bytes = _REQUEST.unpack(_receive(connection, _REQUEST.size, first=True))
    if ranges > MOST_RANGES or blob_bytes > LARGEST_BLOB:
        raise ProtocolError(f"a request with {ranges} ranges and {blob_bytes} bytes")
    try:
        known = Kind(kind)
    except ValueError as error:
        raise ProtocolError(f"there is no request {kind}") from error
    written = tuple(_RANGE.iter_unpack(_receive(connection, ranges * _RANGE.size)))
    return Request(known, tuple(arguments), written, _receive(connection, blob_bytes))


def send_answer(connection: socket.socket, answer: Answer, files: Sequence[int] = ()) -> None:
    """Send one answer, with open files if there are any."""
    text = answer.text.encode()
    values = (*answer.values, 0, 0, 0, 0)[:4]
    head = _ANSWER.pack(answer.code, answer.stop, *values, len(text), len(answer.blob))
    if files:
        sent = socket.send_fds(connection, [head], files)
        connection.sendall(head[sent:] + text + answer.blob)
    else:
        connection.sendall(head + text + answer.blob)


def _poll(connection: socket.socket) -> None:
    """Wait a moment without blocking: an idle core of a virtual machine takes longer to wake than a small launch."""
    until = time.monotonic() + POLL_S
    while time.monotonic() < until:
        try:
            connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        else:
            return


def _receive(connection: socket.socket, size: int, *, first: bool = False) -> bytes:
    parts, missing = [], size
    while missing:
        part = connection.recv(min(missing, 1 << 20), socket.MSG_WAITALL)
        if not part:
            if first and missing == size:
                raise Closed
            raise ProtocolError("the connection was closed within a request")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
