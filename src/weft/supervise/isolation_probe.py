"""Test every layer: isolate a process, check that forbidden actions fail and that its normal work succeeds.

Each layer is tested separately, or another could hide that it does nothing. All layers are tested together at the end.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

from .isolation import CURES, DEVICES, Isolation, Room, confine, limit, room_for
from .isolation_namespaces import enter
from .records import Limits

Act = Callable[[], object]
PROBE_SECONDS = 20.0
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE = 0x4206
_TRIAL = Limits(cpu_seconds=60, memory_bytes=16 << 30, file_bytes=1 << 16, open_files=64)


@dataclass(frozen=True)
class _Bait:
    """Resources outside that a child must not reach."""

    secret: Path
    port: int
    process: int
    socket_name: str


def probe(room: Room) -> Isolation:
    """Return the layers that work on this machine. Takes some 50 ms; leaves nothing behind."""
    missing: dict[str, str] = {}
    with _bait() as bait:
        folder = room.scratch / "probe"
        for layer in CURES:
            alone = Isolation({other: "not tested" for other in CURES if other != layer})
            missing |= _tried(layer, alone, room, folder, bait)
        whole = _tried("files", Isolation(missing), room, folder, bait) if "files" not in missing else {}
    shutil.rmtree(folder, ignore_errors=True)
    return Isolation(missing | {layer: f"together with the others: {why}" for layer, why in whole.items()})


def probe_here() -> Isolation:
    """Return the isolation that a fork server started by this process would have."""
    with TemporaryDirectory(prefix="weft-") as scratch:
        return probe(room_for(Path(scratch)))


def in_namespaces(room: Room, *, for_good: bool = True) -> int:
    """Enter the namespaces. Return inside, with the number of this process as seen from outside."""
    return enter(room.reads, DEVICES, room.scratch, for_good=for_good)


@contextmanager
def _bait() -> Iterator[_Bait]:
    # Another thread may probe at the same time, and a child of an earlier probe may still hold its socket.
    name = f"\0weft-probe-{secrets.token_hex(8)}"
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as local, NamedTemporaryFile() as secret:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        local.bind(name)
        local.listen()
        secret.write(b"x")
        secret.flush()
        os.chmod(secret.name, 0o644)  # readable for all, so that permissions are not the reason of a failure
        yield _Bait(Path(secret.name), listener.getsockname()[1], os.getpid(), name)


def _tried(layer: str, held: Isolation, room: Room, folder: Path, bait: _Bait) -> dict[str, str]:
    """Return an empty dictionary, or the reason why the layer does not work."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(read)
            os.setsid()
            why = _try(layer, held, room, folder, bait, write)
        except BaseException as error:  # with any error, the layer does not work
            why = f"{type(error).__name__}: {error}"
        try:
            os.write(write, json.dumps(why).encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        why = _answer(read)
    finally:
        os.close(read)
        for number in (-process, process):
            try:
                os.kill(number, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        os.waitpid(process, 0)
    return {layer: why} if why else {}


def _answer(read: int) -> str:
    os.set_blocking(read, False)
    deadline = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < deadline:
        try:
            said = os.read(read, 1 << 16)
        except BlockingIOError:
            time.sleep(0.001)
            continue
        return str(json.loads(said)) if said else "the test process died"
    return f"no answer within {PROBE_SECONDS:g} s"


def _try(layer: str, held: Isolation, room: Room, folder: Path, bait: _Bait, write: int) -> str:
    if held.holds("namespaces"):
        in_namespaces(room, for_good=False)
    folder.mkdir(exist_ok=True)
    os.chmod(folder, 0o777)
    if held.holds("limits"):
        limit(_TRIAL)
    confine(held, room, (folder,), threads=1)
    _let_work(room, folder)
    for what, act in _forbidden(layer, folder, bait).items():
        try:
            act()
        except OSError as error:
            if error.errno == errno.EINVAL:
                return f"{what} fails for another reason: {error}"
            continue
        return f"{what} succeeds"
    return ""


def _let_work(room: Room, folder: Path) -> None:
    """Do what a normal candidate needs. Raises OSError."""
    (folder / "mine").write_text("x")
    (folder / "mine").unlink()
    for path in room.reads:
        if path.is_dir():
            os.listdir(path)
    with open(DEVICES[0], "w") as nothing:
        nothing.write("x")


def _forbidden(layer: str, folder: Path, bait: _Bait) -> dict[str, Act]:
    acts: dict[str, dict[str, Act]] = {
        "limits": {
            "taking more memory than is allowed": lambda: _refused(lambda: mmap.mmap(-1, _TRIAL.memory_bytes + 1)),
            "writing a larger file than is allowed": lambda: (folder / "large").write_bytes(bytes(1 << 17)),
            "opening more files than are allowed": lambda: [os.open(DEVICES[0], os.O_RDONLY) for _ in range(65)],
            "raising a limit": _raise_limit,
        },
        "calls": {
            "a socket of the network": lambda: socket.socket(socket.AF_INET),
            "a local socket": lambda: socket.socket(socket.AF_UNIX),
            "emptying a file that it may read": lambda: os.close(os.open(bait.secret, os.O_RDONLY | os.O_TRUNC)),
            "a new process": _fork,
            "a signal to the parent": lambda: os.kill(bait.process, signal.SIGCONT),
            "tracing the parent": lambda: _library("ptrace", _PTRACE_SEIZE, bait.process, None, None),
            "another program": lambda: os.execv("/proc/self/exe", ["python", "-c", ""]),
            "a namespace": lambda: _library("unshare", 0x10000000),
        },
        "files": {
            "reading a file outside": lambda: bait.secret.read_bytes(),
            "listing a folder outside": lambda: os.listdir(bait.secret.parent),
            "writing next to its folder": lambda: (folder.parent / "stray").write_text("x"),
            "writing into Python's folder": lambda: Path(os.__file__).with_name("stray").write_text("x"),
            "another program": lambda: os.execv("/proc/self/exe", ["python", "-c", ""]),
        },
        "namespaces": {
            "being root": _no_root,
            "reaching a server on this machine": lambda: _connect(socket.AF_INET, ("127.0.0.1", bait.port)),
            "reaching a local server": lambda: _connect(socket.AF_UNIX, bait.socket_name),
            "reading a file outside": lambda: bait.secret.read_bytes(),
            "writing into Python's folder": lambda: Path(os.__file__).with_name("stray").write_text("x"),
            "writing into the root folder": lambda: Path("/stray").write_text("x"),
            "a signal to a process outside": lambda: os.kill(bait.process, signal.SIGCONT),
            "becoming root again": lambda: _refused(lambda: os.setresuid(0, 0, 0)),
        },
    }
    return acts[layer]


def _refused(act: Act) -> None:
    """Convert any error to one kind of error."""
    try:
        act()
    except (OSError, ValueError, MemoryError, OverflowError) as error:
        raise PermissionError(errno.EPERM, str(error)) from error


def _raise_limit() -> None:
    if os.geteuid() == 0:  # root may, until another layer drops its capabilities
        raise PermissionError(errno.EPERM, "")
    _refused(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)))


def _connect(family: int, address: tuple[str, int] | str) -> None:
    with socket.socket(family) as line:
        line.settimeout(1.0)
        line.connect(address)


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _library(name: str, *arguments: int | None) -> None:
    if getattr(_LIBRARY, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def _no_root() -> None:
    if 0 not in os.getresuid():
        raise PermissionError(errno.EPERM, "")
