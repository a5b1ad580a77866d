"""Which files a child may see and write: Landlock. Paths that are not named are out of reach, whoever owns them."""

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from .isolation_calls import call

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_OF_ABI_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_SPECIAL_FILES = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11
"""Devices, sockets and pipes: nobody makes those."""
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_VERSION, _BENEATH = 1, 1


def landlock_version() -> int:
    """Of the kernel's Landlock. Raises OSError where there is none."""
    return call("landlock_create_ruleset", None, 0, _VERSION)


def restrict_files(reads: Iterable[Path], writes: Iterable[Path], programs: Iterable[Path] = ()) -> None:
    """For the rest of this process's life. What does not exist is left out. Raises OSError where the kernel cannot.

    Where the kernel knows how, connections over TCP, abstract sockets of others and signals to them are refused too.
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
