"""User, mount, network, IPC, host name and process namespaces around a fork server.

A fork server enters them once and forks its children inside. They see only bound paths, no network, and only their own
processes; they run as the unprivileged user 65534, or as the user who started Weft. When the server ends, the kernel
ends every process inside.
"""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from .isolation_calls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    PR_SET_PDEATHSIG,
    change_root,
    lock_mount,
    mount,
    prctl,
    unshare,
)

UNPRIVILEGED = 65534
SCRATCH_BYTES = 1 << 30
"""Limit of memory for all files of a fork server's children."""


def enter(reads: Iterable[Path], devices: Iterable[Path], scratch: Path, *, for_good: bool) -> int:
    """Return in a new process inside, its first; the calling process waits for it and ends with it. Raises OSError.

    `for_good`: the calling process then removes the scratch folder, which is empty outside; no other process may be
    left to do that.

    Only `scratch` is writable: it is in memory, new and of limited size. Return the new process's number as processes
    outside see it.
    """
    if os.geteuid() != 0:
        _enter_as_oneself()
    unshare(CLONE_NEWPID)
    read, write = os.pipe()
    inside = os.fork()
    if inside:
        os.write(write, str(inside).encode())
        _wait_for(inside, scratch if for_good else None)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.close(write)
    outside_number = int(os.read(read, 32))
    os.close(read)
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)
    _furnish(reads, devices, scratch)
    return outside_number


def drop_root() -> None:
    """Change root to an unprivileged user: a candidate never runs as root. Other users stay the same."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
        os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)


def _enter_as_oneself() -> None:
    user, group = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)


def _wait_for(inside: int, scratch: Path | None) -> NoReturn:
    """Wait for the process inside and end with it, so that waiting for this process waits for that one."""
    os.closerange(0, os.sysconf("SC_OPEN_MAX"))
    _, status = os.waitpid(inside, 0)
    if scratch is not None:
        with contextlib.suppress(OSError):
            scratch.rmdir()
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _furnish(reads: Iterable[Path], devices: Iterable[Path], scratch: Path) -> None:
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    root = str(scratch)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    before = os.umask(0o022)
    for path in sorted({*reads}, key=lambda path: len(path.parts)):
        _bind(path, root, MS_RDONLY | MS_NOSUID | MS_NODEV)
    for path in devices:
        _bind(path, root, MS_NOSUID | MS_NOEXEC)
    os.makedirs(root + str(scratch), exist_ok=True)
    room = f"mode=0755,size={SCRATCH_BYTES},nr_inodes=100000"
    mount("tmpfs", root + str(scratch), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, room)
    os.umask(before)
    change_root(root)
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def _bind(path: Path, root: str, flags: int) -> None:
    """Bind the same path inside; a link stays a link, and its target is bound."""
    target = root + str(path)
    if os.path.lexists(target):
        return  # inside a path that is bound already
    if path.is_symlink():
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.readlink(path), target)
        return
    if not path.exists():
        return
    if path.is_dir():
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(str(path), target, None, MS_BIND | MS_REC)
    lock_mount(target, flags)
