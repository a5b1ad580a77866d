"""Messages between supervisor and child: a JSON object and raw arrays. Not a pickle, so reading one runs no code.

A frame is the length of the JSON (4 bytes), the length of the arrays (8 bytes), the JSON, the arrays one after
another. The JSON's `arrays` lists their names, element types and shapes.
"""

import json
import select
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from weft.attention.dtypes import Array
from weft.engines.element_types import ELEMENT_TYPES

MOST_JSON_BYTES = 64 << 20
MOST_ARRAY_BYTES = 1 << 30
_HEAD = struct.Struct("<IQ")
_NAMES = {dtype: name for name, dtype in ELEMENT_TYPES.items()}


class BrokenFrame(Exception):
    """The other side sent an invalid frame."""


class Closed(Exception):
    """The other side closed the connection."""


class Late(Exception):
    """The other side exceeded its time limit."""


@dataclass(frozen=True)
class Frame:
    """One message."""

    fields: Mapping[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict)


def send(to: socket.socket, frame: Frame, *, seconds: float | None = None) -> None:
    """Send a frame. Raises Closed, or Late if the other side does not read."""
    arrays = {name: np.ascontiguousarray(array) for name, array in frame.arrays.items()}
    listed = [[name, _NAMES[array.dtype], list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**frame.fields, "arrays": listed}).encode()
    size = sum(array.nbytes for array in arrays.values())
    parts: list[bytes | memoryview] = [_HEAD.pack(len(text), size) + text]
    parts += [array.reshape(-1).view(np.uint8).data for array in arrays.values() if array.nbytes]
    deadline = None if seconds is None else time.monotonic() + seconds
    # A plain send waits until all data is accepted, whatever poll reported.
    flags = 0 if seconds is None else socket.MSG_DONTWAIT
    try:
        for part in parts:
            left = memoryview(part)
            while len(left):
                _wait(to, deadline, writing=True)
                left = left[to.send(left, flags) :]
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Closed from error


def receive(source: socket.socket, *, seconds: float | None = None) -> Frame:
    """Return the next frame. Raises Closed, Late or BrokenFrame."""
    deadline = None if seconds is None else time.monotonic() + seconds
    json_bytes, array_bytes = _HEAD.unpack(_exactly(source, _HEAD.size, deadline))
    if json_bytes > MOST_JSON_BYTES or array_bytes > MOST_ARRAY_BYTES:
        raise BrokenFrame(f"a message of {json_bytes} and {array_bytes} bytes")
    try:
        fields = json.loads(_exactly(source, json_bytes, deadline).decode())
        listed = [(name, ELEMENT_TYPES[element], _shape(shape)) for name, element, shape in fields.pop("arrays")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BrokenFrame(f"an invalid message: {error}") from error
    if sum(dtype.itemsize * prod(shape) for _, dtype, shape in listed) != array_bytes:
        raise BrokenFrame("the arrays do not have the announced sizes")
    arrays = {}
    for name, dtype, shape in listed:
        content = _exactly(source, dtype.itemsize * prod(shape), deadline)
        arrays[str(name)] = np.frombuffer(content, np.uint8).view(dtype).reshape(shape)
    return Frame(fields, arrays)


def _shape(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(type(size) is int and 0 <= size <= MOST_ARRAY_BYTES for size in sizes):
        raise ValueError(f"{sizes!r} is not a shape")
    return tuple(sizes)


def _exactly(source: socket.socket, size: int, deadline: float | None) -> bytearray:
    content = bytearray(size)
    left = memoryview(content)
    while len(left):
        _wait(source, deadline, writing=False)
        try:
            count = source.recv_into(left)
        except ConnectionResetError as error:
            raise Closed from error
        if count == 0:
            raise Closed
        left = left[count:]
    return content


def _wait(on: socket.socket, deadline: float | None, *, writing: bool) -> None:
    if deadline is None:
        return
    poll = select.poll()  # not select.select, which supports no descriptors above 1023
    poll.register(on, select.POLLOUT if writing else select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise Late
