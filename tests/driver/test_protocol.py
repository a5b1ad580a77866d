"""The server under requests that no library of ours sends: it answers or disconnects, and stays usable."""

import io
import random
import socket
import struct
import threading

import pytest

from weft.core.chips import chip
from weft.driver.protocol import (
    _ANSWER,
    _REQUEST,
    MOST_RANGES,
    VERSION,
    Answer,
    Closed,
    Code,
    Kind,
    ProtocolError,
    receive_request,
    send_answer,
)
from weft.driver.records import Options
from weft.driver.report import Report
from weft.driver.serve import Client
from weft.vm.launch import PLAIN

PTX = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty(.param .u32 n)\n{\nret;\n}\n"


class Wire:
    """A client of a server in this process."""

    def __init__(self, *, keep_going: bool = True) -> None:
        options = Options(chip("l4"), 1 << 26, PLAIN, 1, 1000, keep_going=keep_going)
        self.out = io.StringIO()
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(60)
        self.client = Client(theirs, options, Report(out=self.out), threading.Lock())
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._serve, args=(theirs,), daemon=True)
        self.thread.start()

    def _serve(self, theirs: socket.socket) -> None:
        with theirs:
            try:
                self.client.serve()
            except (ProtocolError, ConnectionError):
                pass
            except Exception as error:
                self.error = error

    def ask(self, kind: int, *arguments: int, blob: bytes = b"") -> tuple[int, tuple[int, ...], bytes]:
        given = (*arguments, *[0] * 8)[:8]
        self.ours.sendall(_REQUEST.pack(kind, 0, *given, len(blob)) + blob)
        return self.answer()

    def answer(self) -> tuple[int, tuple[int, ...], bytes]:
        head, *_ = socket.recv_fds(self.ours, _ANSWER.size, 1)
        code, _, *values, text, blob = _ANSWER.unpack(head + self._receive(_ANSWER.size - len(head)))
        return code, tuple(values), self._receive(text + blob)

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.ours.recv(size - len(data))
            assert part
            data += part
        return data

    def end(self) -> None:
        self.ours.close()
        self.thread.join(60)
        assert not self.thread.is_alive() and self.error is None, self.error


def test_a_conversation() -> None:
    wire = Wire()
    code, _, record = wire.ask(Kind.HELLO, VERSION, 1)
    assert code == Code.SUCCESS and b"Weft virtual L4" in record
    code, (address, *_), _ = wire.ask(Kind.ALLOCATE, 100, 256, 0)
    assert code == Code.SUCCESS and address % 256 == 0
    assert wire.ask(Kind.ALLOCATE, 1 << 40, 256, 0)[0] == Code.OUT_OF_MEMORY
    code, (module, kernels, *_), names = wire.ask(Kind.LOAD, blob=PTX)
    assert (code, kernels, names) == (Code.SUCCESS, 1, b"empty\0")
    assert wire.ask(Kind.FIND_FUNCTION, module, blob=b"full")[0] == Code.NOT_FOUND
    code, (function, *_), facts = wire.ask(Kind.FIND_FUNCTION, module, blob=b"empty")
    assert code == Code.SUCCESS and struct.unpack("=I16i2I", facts)[0] == 1
    launched = wire.ask(Kind.LAUNCH, function, 1, 1, 1, 32 | 1 << 32, 1, 0, 0, blob=bytes(4))
    assert launched[:2] == (Code.SUCCESS, (0, 0, 0, 0))
    assert wire.ask(Kind.LAUNCH, function, 1, 1, 1, 2048 | 1 << 32, 1, 0, 0, blob=bytes(4))[0] == Code.INVALID_VALUE
    assert wire.ask(Kind.OCCUPANCY, function, 1024, 0)[1][0] == 1  # 1536 threads per SM
    assert wire.ask(Kind.RELEASE, address)[0] == Code.SUCCESS
    assert wire.ask(Kind.RELEASE, address)[0] == Code.INVALID_VALUE
    assert wire.ask(Kind.UNLOAD, module)[0] == Code.SUCCESS
    assert wire.ask(Kind.LAUNCH, function, 1, 1, 1, 32 | 1 << 32, 1, 0, 0, blob=bytes(4))[0] == Code.INVALID_HANDLE
    wire.end()


def test_random_requests() -> None:
    draw = random.Random(2)
    numbers = (0, 1, 2, 3, 31, 32, 255, 256, 4096, 1 << 20, 1 << 31, 1 << 32, 1 << 47, 0x7000_0000_0100, (1 << 64) - 1)
    wire = Wire()
    wire.ask(Kind.HELLO, VERSION, 1)
    for _ in range(400):
        kind = draw.choice([kind for kind in Kind if kind not in (Kind.HELLO, Kind.BYE)])
        blob = draw.choice(
            (b"", PTX, b"empty", bytes(4), draw.randbytes(draw.randrange(64)), PTX[: draw.randrange(90)])
        )
        wire.ask(kind, *(draw.choice(numbers) for _ in range(8)), blob=blob)
    assert wire.ask(Kind.ALLOCATE, 16, 256, 0)[0] == Code.SUCCESS
    wire.end()


def test_random_bytes_end_the_connection_at_most() -> None:
    draw = random.Random(3)
    for _ in range(60):
        wire = Wire()
        request = bytearray(_REQUEST.pack(draw.choice(list(Kind)), 0, *[draw.randrange(1 << 20)] * 8, 8) + bytes(8))
        for _ in range(draw.randrange(1, 8)):
            request[draw.randrange(len(request))] = draw.randrange(256)
        wire.ours.sendall(bytes(request[: draw.choice((5, 40, len(request)))]))
        wire.ours.shutdown(socket.SHUT_WR)
        wire.end()


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (_REQUEST.pack(99, 0, *[0] * 8, 0), "no request 99"),
        (_REQUEST.pack(2, MOST_RANGES + 1, *[0] * 8, 0), "ranges"),
        (_REQUEST.pack(2, 0, *[0] * 8, 1 << 40), "bytes"),
        (_REQUEST.pack(2, 0, *[0] * 8, 4) + b"12", "within a request"),
        (b"1234", "within a request"),
    ],
)
def test_malformed_requests(sent: bytes, message: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent)
        ours.close()
        with pytest.raises(ProtocolError, match=message):
            receive_request(theirs)


def test_the_end_of_a_connection() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.close()
        with pytest.raises(Closed):
            receive_request(theirs)


def test_an_answer_carries_text_and_bytes() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send_answer(theirs, Answer(Code.NOT_FOUND, (7,), "é", b"12", stop=True))
        data = ours.recv(1000)
    assert _ANSWER.unpack_from(data) == (500, 1, 7, 0, 0, 0, 2, 2)
    assert data[_ANSWER.size :] == "é".encode() + b"12"
