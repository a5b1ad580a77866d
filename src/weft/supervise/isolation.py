"""How well a child is shut in, as a level that was tried out, never assumed.

0 the virtual GPU's own bounds · 1 a process with limits, killed from outside · 2 and seccomp and Landlock ·
3 and namespaces: no network, only needed paths, own process numbers, never root.
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
from .isolation_namespaces import become_nobody
from .records import Limits

HIGHEST = 3
GRACE_SECONDS = 5
"""Between the signal that says the CPU time is over and the one that cannot be caught."""
SYSTEM = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
"""Where programs have their libraries."""
DEVICES = tuple(Path("/dev", name) for name in ("null", "zero", "urandom"))
CURES = {
    "limits": "run on Linux with resource limits",
    "calls": "use a kernel with seccomp (CONFIG_SECCOMP_FILTER) on x86-64 or aarch64",
    "files": "use Linux 5.13 or newer with Landlock among its security modules (`lsm=landlock,…`)",
    "namespaces": "allow user namespaces (`sysctl user.max_user_namespaces`, `kernel.unprivileged_userns_clone`, "
    "`kernel.apparmor_restrict_unprivileged_userns`), or as root in a container add `--cap-add SYS_ADMIN`",
}
"""By layer: what to do where it does not hold."""
LEVEL_OF = {"limits": 1, "calls": 2, "files": 2, "namespaces": 3}


class NotIsolated(UsageError):
    """The machine does not give the isolation that is required."""


@dataclass(frozen=True)
class Isolation:
    """What was found to hold."""

    missing: Mapping[str, str]
    """Layer → why it does not hold."""

    @property
    def level(self) -> int:
        """The highest whose layers hold, and those of all below."""
        return min((LEVEL_OF[layer] - 1 for layer in self.missing), default=HIGHEST)

    def holds(self, layer: str) -> bool:
        """A layer is used wherever it works, also where another of its level does not."""
        return layer not in self.missing

    def require(self, level: int) -> None:
        """Raises NotIsolated."""
        if self.level >= level:
            return
        lacking = [layer for layer in self.missing if LEVEL_OF[layer] <= level]
        why = "; ".join(f"{layer}: {self.missing[layer]} (cure: {CURES[layer]})" for layer in lacking)
        raise NotIsolated(
            f"isolation level {level} is required, and this machine gives {self.level}. What is missing: {why}. "
            f"Or ask for less: --require-isolation {self.level}"
        )


@dataclass(frozen=True)
class Room:
    """What children of one fork server may touch."""

    scratch: Path
    """Under which each has folders of its own."""
    reads: tuple[Path, ...]
    programs: tuple[Path, ...] = ()
    """That may be started in place of a child."""


def room_for(scratch: Path, *more: Path, programs: tuple[Path, ...] = ()) -> Room:
    """Python, its packages and the system's libraries; and `more`."""
    named = [sys.base_prefix, sys.prefix, *sys.path, *SYSTEM, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    paths = [Path(name).absolute() for name in named if name] + list(more) + list(programs)
    existing = [path for path in paths if path.exists() and path != Path("/")]
    real = [Path(os.path.realpath(path)) for path in existing]
    return Room(scratch, tuple(dict.fromkeys([*existing, *real])), programs)


def limit(limits: Limits) -> None:
    """The limits of one evaluation. Raises OSError or ValueError."""
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
    """Shut this process in, for good, with every layer that holds. `program`: it may become one of the room's."""
    if held.holds("namespaces"):
        become_nobody()
    if threads == 1:  # it starts nothing; after the change of the user, or exec would count too. Root heeds it not.
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of the user would take it back
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if held.holds("namespaces") or held.holds("calls"):
        drop_capabilities()
    if held.holds("files"):
        programs = [*room.programs, *_loaders()] if program else []
        restrict_files([*room.reads, *DEVICES], [*folders, DEVICES[0]], programs)
    if held.holds("calls"):
        restrict_calls(os.getpid(), threads=threads > 1, execute=program)


def _loaders() -> list[Path]:
    """The dynamic loader is what the kernel starts first."""
    found = [path for folder in ("/lib64", "/lib") for path in Path(folder).glob("ld-linux*.so*")]
    return [Path(os.path.realpath(path)) for path in found]
