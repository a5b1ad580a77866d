"""The isolation of a child, as a level that was tested, never assumed.

0 the bounds of the virtual GPU · 1 a process with limits, killed from outside · 2 also seccomp and Landlock ·
3 also namespaces: no network, only needed paths, own process numbers, never root.
"""

import os
import resource
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.core.errors import UsageError

from .isolation_calls import PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, drop_capabilities, prctl
from .isolation_filter import restrict_calls, restrict_files
from .isolation_namespaces import drop_root
from .records import Limits

HIGHEST = 3
GRACE_SECONDS = 5
"""Time between the signal for the end of the CPU time and the signal that cannot be caught."""
SYSTEM = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
"""Folders of the libraries of programs."""
DEVICES = tuple(Path("/dev", name) for name in ("null", "zero", "urandom"))
CURES = {
    "limits": "run on Linux with resource limits",
    "calls": "use a kernel with seccomp (CONFIG_SECCOMP_FILTER) on x86-64 or aarch64",
    "files": "use Linux 5.13 or newer with Landlock among its security modules (`lsm=landlock,…`)",
    "namespaces": "allow user namespaces (`sysctl user.max_user_namespaces`, `kernel.unprivileged_userns_clone`, "
    "`kernel.apparmor_restrict_unprivileged_userns`), or as root in a container add `--cap-add SYS_ADMIN`",
}
"""Layer → what to do if it does not work."""
LEVEL_OF = {"limits": 1, "calls": 2, "files": 2, "namespaces": 3}


class NotIsolated(UsageError):
    """The machine does not provide the required isolation."""


@dataclass(frozen=True)
class Isolation:
    """The layers that work on this machine."""

    missing: Mapping[str, str]
    """Layer → the reason why it does not work."""

    @property
    def level(self) -> int:
        """Return the highest level whose layers, and those of all levels below, work."""
        return min((LEVEL_OF[layer] - 1 for layer in self.missing), default=HIGHEST)

    def holds(self, layer: str) -> bool:
        """Return whether a layer works. It is used even if another layer of its level does not work."""
        return layer not in self.missing

    def require(self, level: int) -> None:
        """Raise NotIsolated if the level is lower than required."""
        if self.level >= level:
            return
        lacking = [layer for layer in self.missing if LEVEL_OF[layer] <= level]
        why = "; ".join(f"{layer}: {self.missing[layer]} (cure: {CURES[layer]})" for layer in lacking)
        raise NotIsolated(
            f"isolation level {level} is required, but this machine provides {self.level}. Missing: {why}. "
            f"To accept less: --require-isolation {self.level}"
        )


@dataclass(frozen=True)
class Room:
    """The paths that children of one fork server may use."""

    scratch: Path
    """The folder in which each child has its own folders."""
    reads: tuple[Path, ...]
    programs: tuple[Path, ...] = ()
    """Programs that a child may become."""


def room_for(scratch: Path, *more: Path, programs: tuple[Path, ...] = ()) -> Room:
    """Return the paths of Python, its packages, the system's libraries, and `more`."""
    named = [sys.base_prefix, sys.prefix, *sys.path, *SYSTEM, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    named += [path for folder in sys.path if folder.endswith("-packages") for path in _links(folder)]
    paths = [Path(name).absolute() for name in named if name] + list(more) + list(programs)
    existing = [path for path in paths if path.exists() and path != Path("/")]
    real = [Path(os.path.realpath(path)) for path in existing]
    return Room(scratch, tuple(dict.fromkeys([*existing, *real])), programs)


def _links(folder: str) -> list[str]:
    """Return the packages that are links: some installers keep them in one place for several environments."""
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_symlink()]


def limit(limits: Limits) -> None:
    """Set the limits of one evaluation. Raises OSError or ValueError."""
    wanted = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + GRACE_SECONDS),
        (resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.open_files, limits.open_files),
        (resource.RLIMIT_AS, limits.memory_bytes, limits.memory_bytes),
    ]
    for kind, soft, hard in wanted:
        _, most = resource.getrlimit(kind)
        lowered = [bound if most == resource.RLIM_INFINITY else min(bound, most) for bound in (soft, hard)]
        resource.setrlimit(kind, (lowered[0], lowered[1]))


def confine(held: Isolation, room: Room, folders: tuple[Path, ...], *, threads: int, program: bool = False) -> None:
    """Isolate this process permanently with every layer that works. `program`: it may become a program of the room."""
    if held.holds("namespaces"):
        drop_root()
    if threads == 1:  # it starts no process; set after the change of the user, or exec would count. No effect for root.
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of the user would reset it
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if held.holds("namespaces") or held.holds("calls"):
        drop_capabilities()
    if held.holds("files"):
        programs = [*room.programs, *_loaders()] if program else []
        restrict_files([*room.reads, *DEVICES], [*folders, DEVICES[0]], programs)
    if held.holds("calls"):
        restrict_calls(os.getpid(), threads=threads > 1, execute=program)


def _loaders() -> list[Path]:
    """Return the dynamic loaders, which the kernel starts first."""
    found = [path for folder in ("/lib64", "/lib") for path in Path(folder).glob("ld-linux*.so*")]
    return [Path(os.path.realpath(path)) for path in found]
