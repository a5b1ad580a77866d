"""The fork server: a process that has imported everything once and forks a child per evaluation.

`python -m weft.supervise.zygote FD` speaks with its supervisor over the socket FD. It has one thread, so forking is
safe: NumPy with one BLAS thread, llvmlite with a JIT and NVRTC start none until they work, and they work in children
only. It adopts what its children leave behind, and ends it.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_STEP_SECONDS = 0.002
MOST_BYTES = 1 << 16


def main(descriptor: int) -> int:
    """Serve until the supervisor is gone."""
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    from .child import preload, serve

    preload()
    gc.collect()
    gc.freeze()  # a collection in a child must not touch, and so copy, every page of the parent
    if _threads() != 1:
        raise RuntimeError(f"{_threads()} threads: forking now would copy locks that nobody will ever open")
    control.send(json.dumps({"ready": os.getpid(), "threads": _threads()}).encode())
    children: set[int] = set()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
        if not message:
            for child in children:
                _kill_group(child)
            _end_strays()
            return 0
        request = json.loads(message)
        if "fork" in request:
            talk, errors = descriptors
            child = os.fork()
            if child == 0:
                control.close()
                serve(talk, errors, request["fork"])
            os.close(talk)
            os.close(errors)
            children.add(child)
            control.send(json.dumps({"pid": child}).encode())
        else:
            child = int(request["reap"])
            status = _reap(child, float(request["patience"]))
            children.discard(child)
            control.send(json.dumps({"status": status, "strays": _end_strays()}).encode())


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


def _end_strays() -> int:
    """End everything that is still a child of this process: orphans of children that left their group come here."""
    ended = 0
    while True:
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


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
