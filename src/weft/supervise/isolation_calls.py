"""System calls for which Python 3.11 has no names: namespaces, mounts, Landlock, seccomp, capabilities."""

import ctypes
import os
import platform

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.syscall.restype = ctypes.c_long

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
_MNT_DETACH, _AT_FDCWD, _AT_RECURSIVE = 2, -100, 0x8000
_MOST_CAPABILITIES = 64

# name → number on x86-64, on aarch64
_NUMBERS = {
    "capset": (126, 91),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "seccomp": (317, 277),
}
MACHINES = ("x86_64", "aarch64")


def machine() -> int:
    """Return this machine's column in the tables of system calls. Raises OSError on unsupported machines."""
    name = platform.machine()
    if name not in MACHINES:
        raise OSError(f"the system calls of {name} are not supported, only those of {', '.join(MACHINES)}")
    return MACHINES.index(name)


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make one system call by name. Raises OSError."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(int(_LIBRARY.syscall(ctypes.c_long(_NUMBERS[name][machine()]), *passed)), name)


def prctl(option: int, value: int = 0) -> None:
    """Raises OSError."""
    _checked(
        _LIBRARY.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)),
        f"prctl({option})",
    )


def unshare(flags: int) -> None:
    """Raises OSError."""
    _checked(_LIBRARY.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Raises OSError."""
    words = (source.encode(), target.encode(), None if kind is None else kind.encode())
    _checked(_LIBRARY.mount(*words, ctypes.c_ulong(flags), data.encode()), f"mount({source}, {target})")


def lock_mount(path: str, flags: int) -> None:
    """Add MS_RDONLY, MS_NOSUID, MS_NODEV or MS_NOEXEC to a mount and to all below it. Raises OSError."""
    attributes = b"".join(value.to_bytes(8, "little") for value in (flags, 0, 0, 0))
    call("mount_setattr", _AT_FDCWD, path.encode(), _AT_RECURSIVE, attributes, len(attributes))


def change_root(path: str) -> None:
    """Make the mount `path` the root and remove the old root. Raises OSError."""
    os.chdir(path)
    call("pivot_root", b".", b".")
    _checked(_LIBRARY.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir("/")


def drop_capabilities() -> None:
    """Drop all capabilities, for this process and every program it executes. Raises OSError."""
    for capability in range(_MOST_CAPABILITIES):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # beyond the last one, or no permission: then no_new_privs must suffice
            continue
    version_3 = (0x20080522).to_bytes(4, "little") + bytes(4)
    call("capset", version_3, bytes(24))


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
