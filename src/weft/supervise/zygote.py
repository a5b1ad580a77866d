"""The fork server: a process that has imported everything once and forks a child per evaluation.

`python -m weft.supervise.zygote FD SCRATCH` communicates with its supervisor over the socket FD. It has one thread, so
forking is safe: NumPy with one BLAS thread, llvmlite and NVRTC start threads only when they work, and they work in
children only. If namespaces work, it enters them before the first child. It adopts the processes that its children
leave behind, and ends them.
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
from .isolation_namespaces import UNPRIVILEGED
from .isolation_probe import in_namespaces, probe

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_STEP_SECONDS = 0.002
MOST_BYTES = 1 << 16
MOST_KEPT = 64
"""Limit of kept folders with compiled code of candidates whose child ended normally: they may be judged again."""
LEAST_FREE_BYTES = 256 << 20
"""With less free space than this, only folders that a running child uses are kept."""


class Folders:
    """The folders of children in one scratch folder: one for temporary files, and one per candidate."""

    def __init__(self, scratch: Path, held: Isolation) -> None:
        self._scratch, self._unprivileged = scratch, held.holds("namespaces") and os.geteuid() == 0
        self._candidates: dict[str, Path] = {}
        """Ordered by use: the last one was used last."""
        self._of_child: dict[int, tuple[Path, str]] = {}
        self._number = 0

    def make(self, candidate: str) -> tuple[Path, Path]:
        """Return a new folder for temporary files, and the candidate's folder, which may exist already."""
        self._number += 1
        kept = self._candidates.pop(candidate, None) or self._scratch / f"c{self._number}"
        self._candidates[candidate] = kept
        for folder in (temporary := self._scratch / f"t{self._number}", kept):
            folder.mkdir(exist_ok=True)
            if self._unprivileged:
                os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
        self._evict(made=candidate)
        return temporary, kept

    def _evict(self, made: str) -> None:
        """Remove the folders used longest ago, but never one of a running child: a program that a candidate requests
        runs at the same time, and the candidate's child has its compiled files open.
        """
        most = MOST_KEPT if _free_bytes(self._scratch) > LEAST_FREE_BYTES else 1
        in_use = {made, *(candidate for _, candidate in self._of_child.values())}
        idle = [candidate for candidate in self._candidates if candidate not in in_use]
        for candidate in idle[: max(0, len(self._candidates) - most)]:
            _remove(self._candidates.pop(candidate))

    def belong(self, child: int, temporary: Path, candidate: str) -> None:
        """Assign folders to a child, until it has ended."""
        self._of_child[child] = temporary, candidate

    def clean(self, child: int, *, keep: bool) -> None:
        """Remove the temporary folder of a child; if the child died, also the candidate's, which may be incomplete."""
        temporary, candidate = self._of_child.pop(child)
        _remove(temporary)
        if not keep and candidate in self._candidates:
            _remove(self._candidates.pop(candidate))


def main(descriptor: int, scratch: Path) -> int:
    """Serve until the supervisor ends."""
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from .child import preload

    room = preload(scratch)
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, every page of the parent
    if _threads() != 1:
        raise RuntimeError(f"{_threads()} threads: forking now would copy locks that no thread releases")
    held = probe(room)
    _end_strays(alone=False)  # first processes of namespaces that were tested
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
            # Another child may be waiting for the result of this one.
            strays = 0 if children else _end_strays(alone=alone)
            folders.clean(child, keep=request["keep"])
            control.send(json.dumps({"status": status, "strays": strays}).encode())


def _reap(child: int, patience: float) -> int:
    """Return the child's wait status; kill it after `patience`. Until then its number is not used again."""
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
    """Kill the child and what it started; before it leads a group, only the child."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)


def _end_strays(*, alone: bool) -> int:
    """End all processes that are left: orphans of children that left their group are adopted here.

    If `alone` in a process namespace, all other processes are such, and the kernel ends them at once, however fast
    they fork.
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
    except FileNotFoundError:  # a kernel without this file: read the parent of every process
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
    """Remove a folder. What cannot be removed now is removed with the scratch folder."""
    with contextlib.suppress(RecursionError):  # deeply nested folders
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
