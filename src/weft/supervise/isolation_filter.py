"""What the kernel refuses a child: system calls (seccomp) and files (Landlock).

Only the calls that computing and compiling need are allowed. Others fail with EPERM: no sockets, no new processes, no
signals to others, no tracing, no namespaces, no mounts. A call with the ABI of another machine (32 bit, x32) ends the
process. Paths that are not listed cannot be accessed, whoever owns them.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from .isolation_calls import call, machine

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_ARCHITECTURES = (0xC000003E, 0xC00000B7)
_X32 = 0x40000000
_CLONE_THREAD = 0x00010000
_CLONE_NEW_ANYTHING = 0x7E020000
_SET_MODE_FILTER = 1
_LOAD, _EQUAL, _SET, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
"""Offsets in the kernel's record of a call; of the arguments, the low halves."""

# name → number on x86-64, on aarch64; None: that machine has no such call
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "stat": (4, None), "fstat": (5, 80),
    "lstat": (6, None), "poll": (7, None), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226),
    "munmap": (11, 215), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66),
    "access": (21, None), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233), "dup": (32, 23),
    "dup2": (33, None), "nanosleep": (35, 101), "getpid": (39, 172), "sendto": (44, 206), "recvfrom": (45, 207),
    "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210), "getsockname": (51, 204),
    "getpeername": (52, 205), "getsockopt": (55, 209), "exit": (60, 93), "uname": (63, 160), "fcntl": (72, 25),
    "flock": (73, 32), "fsync": (74, 82), "ftruncate": (77, 46), "getcwd": (79, 17), "chdir": (80, 49),
    "rename": (82, None), "mkdir": (83, None), "rmdir": (84, None), "unlink": (87, None), "readlink": (89, None),
    "umask": (95, 166), "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165),
    "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175),
    "getegid": (108, 177), "getppid": (110, 173), "sigaltstack": (131, 132), "statfs": (137, 43),
    "fstatfs": (138, 44), "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "arch_prctl": (158, None), "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123),
    "getdents64": (217, 61), "set_tid_address": (218, 96), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "mkdirat": (258, 34),
    "newfstatat": (262, 79), "unlinkat": (263, 35), "renameat": (264, 38), "readlinkat": (267, 78),
    "faccessat": (269, 48), "ppoll": (271, 73), "set_robust_list": (273, 99), "dup3": (292, 24),
    "renameat2": (316, 276), "getrandom": (318, 278), "membarrier": (324, 283), "statx": (332, 291),
    "rseq": (334, 293), "close_range": (436, 436), "faccessat2": (439, 439),
}  # fmt: skip
_IOCTL, _TGKILL, _PRLIMIT, _CLONE = (16, 29), (234, 131), (302, 261), (56, 220)
_CLONE3, _EXECVE = (435, 435), (59, 221)
_OPEN, _OPENAT = 2, (257, 56)
_EMPTIES_WHAT_IT_READS, _EMPTIES = 0x203, 0x200
"""Bits of the flags, and their value, that truncate a file that is opened for reading."""
_TERMINAL_STATE, _NOT_BLOCKING, _NOT_CLOSED_BY_EXEC, _CLOSED_BY_EXEC = 0x5401, 0x5421, 0x5450, 0x5451

# Landlock: rights, and layers of its rules
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_OF_ABI_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_SPECIAL_FILES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11
"""Devices, sockets and pipes: never allowed to be created."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_VERSION, _BENEATH = 1, 1

Instruction = tuple[int, int, int, int]


def restrict_calls(process: int, *, threads: bool = False, execute: bool = False) -> None:
    """Restrict system calls until this process ends; `process` is its number. Raises OSError if unsupported."""
    program = b"".join(struct.pack("<HBBI", *each) for each in _program(machine(), process, threads, execute))
    text = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(text))
    call("seccomp", _SET_MODE_FILTER, 0, header)


def _program(column: int, process: int, threads: bool, execute: bool) -> list[Instruction]:
    """Return the BPF program: load the number, compare, return."""
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[column]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for numbers in _ALLOWED.values():
        number = numbers[column]
        if number is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    if execute:
        program += [(_EQUAL, 0, 1, _EXECVE[column]), (_RETURN, 0, 0, _ALLOW)]
    # Landlock before Linux 6.2 allows truncating a file that may be read.
    program += _unless_emptying(_OPENAT[column], _THIRD)
    program += _unless_emptying(_OPEN, _SECOND) if column == 0 else []
    # Then glibc uses clone, whose flags a filter can read.
    program += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    harmless = (_TERMINAL_STATE, _NOT_BLOCKING, _NOT_CLOSED_BY_EXEC, _CLOSED_BY_EXEC)
    program += _if_one_of(_IOCTL[column], _SECOND, harmless)
    program += _if_one_of(_TGKILL[column], _FIRST, (process,))  # abort()
    program += _if_one_of(_PRLIMIT[column], _FIRST, (0,))
    if threads:
        program += [
            (_EQUAL, 0, 4, _CLONE[column]),
            (_LOAD, 0, 0, _FIRST),
            (_SET, 2, 0, _CLONE_NEW_ANYTHING),
            (_SET, 0, 1, _CLONE_THREAD),
            (_RETURN, 0, 0, _ALLOW),
        ]
    return [*program, (_RETURN, 0, 0, _ERRNO | _EPERM)]


def _unless_emptying(number: int, flags: int) -> list[Instruction]:
    return [
        (_EQUAL, 0, 5, number),
        (_LOAD, 0, 0, flags),
        (_AND, 0, 0, _EMPTIES_WHAT_IT_READS),
        (_EQUAL, 0, 1, _EMPTIES),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _if_one_of(number: int, argument: int, values: tuple[int, ...]) -> list[Instruction]:
    """Return code that allows the call if its argument is one of these, and refuses it otherwise."""
    compare = [part for value in values for part in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    body = [(_LOAD, 0, 0, argument), *compare, (_RETURN, 0, 0, _ERRNO | _EPERM)]
    return [(_EQUAL, 0, len(body), number), *body]


def landlock_version() -> int:
    """Return the version of the kernel's Landlock. Raises OSError if there is none."""
    return call("landlock_create_ruleset", None, 0, _VERSION)


def restrict_files(reads: Iterable[Path], writes: Iterable[Path], programs: Iterable[Path] = ()) -> None:
    """Restrict files until this process ends. Missing paths are skipped. Raises OSError if unsupported.

    If the kernel supports it, TCP connections, abstract sockets of other processes and signals to them are refused.
    """
    version = landlock_version()
    files = _OF_ABI_1 | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    files |= _DEVICE_CONTROL if version >= 5 else 0
    rules = [files]
    rules += [_TCP] if version >= 4 else []
    rules += [_ABSTRACT_SOCKETS_AND_SIGNALS] if version >= 6 else []
    ruleset = call("landlock_create_ruleset", b"".join(rule.to_bytes(8, "little") for rule in rules), 8 * len(rules), 0)
    try:
        for path in reads:
            _add(ruleset, path, files & (_READ_FILE | _READ_DIR))
        for path in writes:
            _add(ruleset, path, files & ~(_SPECIAL_FILES | _EXECUTE | _DEVICE_CONTROL))
        for path in programs:
            _add(ruleset, path, files & (_READ_FILE | _EXECUTE))
        call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _add(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        allowed = rights if path.is_dir() else rights & _OF_FILES
        call("landlock_add_rule", ruleset, _BENEATH, struct.pack("<Qi", allowed, descriptor), 0)
    finally:
        os.close(descriptor)
