"""The fork server: a process that has imported everything once and forks a child per evaluation.

`python -m weft.supervise.zygote FD SCRATCH` speaks with its supervisor over the socket FD. It has one thread, so
forking is safe: NumPy with one BLAS thread, llvmlite with a JIT and NVRTC start none until they work, and they work in
children only. Where that holds, it moves into namespaces before the first child. It adopts what its children leave
behind, and ends it.
"""

import contextlib
import ctypes
import gc
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from .isolation import Isolation, Room
from .isolation_namespaces import NOBODY
from .isolation_probe import in_namespaces, probe

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_STEP_SECONDS = 0.002
MOST_BYTES = 1 << 16
MOST_KEPT = 64
"""Folders of candidates that were judged well, with what was compiled for them: they may be judged again."""
LEAST_FREE_BYTES = 256 << 20
"""With less free space than this, only folders that a running child uses are kept."""


class Folders:
    """Of children, under one scratch folder: one for temporary files, and one per candidate."""

    def __init__(self, scratch: Path, held: Isolation) -> None:
        self._scratch, self._for_nobody = scratch, held.holds("namespaces") and os.geteuid() == 0
        self._candidates: dict[str, Path] = {}
        """The one that was used last is the last."""
        self._of_child: dict[int, tuple[Path, str]] = {}
        self._number = 0

    def make(self, candidate: str) -> tuple[Path, Path]:
        """A new one for temporary files, and the candidate's, which may be an old one."""
        self._number += 1
        kept = self._candidates.pop(candidate, None) or self._scratch / f"c{self._number}"
        self._candidates[candidate] = kept
        for folder in (temporary := self._scratch / f"t{self._number}", kept):
            folder.mkdir(exist_ok=True)
            if self._for_nobody:
                os.chown(folder, NOBODY, NOBODY)
        self._evict(made=candidate)
        return temporary, kept

    def _evict(self, made: str) -> None:
        """Remove the folders used longest ago, but never one of a running child: a program that a candidate asks for
        runs next to it, and the candidate's own child has its compiled files open.
        """
        most = MOST_KEPT if _free_bytes(self._scratch) > LEAST_FREE_BYTES else 1
        in_use = {made, *(candidate for _, candidate in self._of_child.values())}
        idle = [candidate for candidate in self._candidates if candidate not in in_use]
        for candidate in idle[: max(0, len(self._candidates) - most)]:
            _remove(self._candidates.pop(candidate))

    def belong(self, child: int, temporary: Path, candidate: str) -> None:
        """To a child, until it has ended."""
        self._of_child[child] = temporary, candidate

    def clean(self, child: int, *, keep: bool) -> None:
        """What a child left; of one that died also the candidate's, which may hold half of something."""
        temporary, candidate = self._of_child.pop(child)
        _remove(temporary)
        if not keep and candidate in self._candidates:
            _remove(self._candidates.pop(candidate))


def main(descriptor: int, scratch: Path) -> int:
    """Serve until the supervisor is gone."""
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from .child import preload

    room = preload(scratch)
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, every page of the parent
    if _threads() != 1:
        raise RuntimeError(f"{_threads()} threads: forking now would copy locks that nobody will ever open")
    held = probe(room)
    _end_strays(alone=False)  # first processes of namespaces that were tried out
    threads, processes = _threads(), os.open("/proc", os.O_PATH | os.O_CLOEXEC)
    number = in_namespaces(room) if held.holds("namespaces") else os.getpid()
    control.send(json.dumps({"ready": number, "threads": threads, "missing": dict(held.missing)}).encode())
    return _serve(control, held, room, processes)


def _serve(control: socket.socket, held: Isolation, room: Room, processes: int) -> int:
    from .child import serve

    alone = held.holds("namespaces")
    folders = Folders(room.scratch, held)
    children: set[int] = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
        if not message:
            for child in children:
                _kill_group(child)
            _end_strays(alone=alone)
            _remove(room.scratch)
            return 0
        request = json.loads(message)
        if "fork" in request:
            talk, errors = descriptors
            settings = request["fork"]
            temporary, kept = folders.make(settings["candidate"])
            child = os.fork()
            if child == 0:
                control.close()
                serve(talk, errors, settings, held, room, (temporary, kept), processes)
            os.close(talk)
            os.close(errors)
            children.add(child)
            folders.belong(child, temporary, settings["candidate"])
            control.send(json.dumps({"pid": child}).encode())
        else:
            child = int(request["reap"])
            status = _reap(child, float(request["patience"]))
            children.discard(child)
            # Another child may be waiting for what this one did.
            strays = 0 if children else _end_strays(alone=alone)
            folders.clean(child, keep=request["keep"])
            control.send(json.dumps({"status": status, "strays": strays}).encode())


def _reap(child: int, patience: float) -> int:
    """The child's wait status; it is killed if it lives longer than `patience`. Its number is not used again before."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            _kill_group(child)
            return status
        time.sleep(PATIENCE_STEP_SECONDS)
    _kill_group(child)
    return os.waitpid(child, 0)[1]


def _kill_group(leader: int) -> None:
    """The child and what it started; before it leads a group, itself."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)


def _end_strays(*, alone: bool) -> int:
    """End everything that is left: orphans of children that left their group come here.

    `alone` in a process namespace all others are such, and the kernel ends them at once, however fast they fork.
    """
    ended = 0
    while True:
        if alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            for stray in _children():
                _kill_group(stray)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return ended
        ended += 1


def _children() -> list[int]:
    path = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    try:
        with open(path) as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without this file: look at everybody's parent
        return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _parent(name) == os.getpid()]


def _parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _free_bytes(folder: Path) -> int:
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def _remove(folder: Path) -> None:
    """What cannot be removed now goes with the scratch folder."""
    with contextlib.suppress(RecursionError):  # folders in folders in folders …
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
