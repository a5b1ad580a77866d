"""Messages carry plain data: invalid messages are refused, and every wait has a limit."""

import json
import pickle
import socket
import struct

import ml_dtypes
import numpy as np
import pytest

from weft.supervise.frames import BrokenFrame, Closed, Frame, Late, receive, send


def raw(text: bytes, arrays: bytes = b"") -> bytes:
    return struct.pack("<IQ", len(text), len(arrays)) + text + arrays


def test_arrays_of_every_kind_arrive_bit_for_bit() -> None:
    here, there = socket.socketpair()
    arrays = {
        "q": np.arange(24, dtype=np.float16).reshape(2, 3, 4),
        "b": np.array([1.5, np.nan], ml_dtypes.bfloat16),
        "e": np.array([[1.0]], ml_dtypes.float8_e4m3fn),
        "none": np.zeros((0, 4), np.float32),
        "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    }
    with here, there:
        send(here, Frame({"do": "run", "x": [1, None, "ü"]}, arrays), seconds=5)
        found = receive(there, seconds=5)
    assert found.fields == {"do": "run", "x": [1, None, "ü"]}
    assert list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()
        assert found.arrays[name].flags.writeable


@pytest.mark.parametrize(
    "message",
    [
        raw(pickle.dumps({"arrays": []})),
        raw(b"[]"),
        raw(b"{}"),
        raw(b'{"arrays": [["q", "object", [1]]]}', b"12345678"),
        raw(b'{"arrays": [["q", "f32", [-1]]]}'),
        raw(b'{"arrays": [["q", "f32", [true]]]}', b"1234"),
        raw(b'{"arrays": [["q", "f32", [2]]]}', b"1234"),
        raw(b'{"arrays": [["q", "f32", [4611686018427387904, 4]]]}'),
        raw(b"[" * 100_000),
        struct.pack("<IQ", 1 << 31, 0),
        struct.pack("<IQ", 2, 1 << 50),
    ],
)
def test_an_invalid_message_is_refused(message: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(message)
        with pytest.raises(BrokenFrame):
            receive(there, seconds=5)


def test_every_wait_has_a_limit() -> None:
    here, there = socket.socketpair()
    with here, there:
        with pytest.raises(Late):
            receive(there, seconds=0.05)
        here.sendall(struct.pack("<IQ", 100, 0) + b"{")
        with pytest.raises(Late):
            receive(there, seconds=0.05)
        with pytest.raises(Late):
            send(here, Frame({}, {"large": np.zeros(1 << 24, np.uint8)}), seconds=0.1)


def test_the_other_side_may_have_closed_the_connection() -> None:
    here, there = socket.socketpair()
    with here:
        there.close()
        with pytest.raises(Closed):
            receive(here, seconds=5)
        with pytest.raises(Closed):
            send(here, Frame({"text": json.dumps({})}, {"a": np.zeros(1 << 20, np.uint8)}), seconds=5)
