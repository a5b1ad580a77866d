"""The canonical form of a candidate: equal for candidates that launch the same kernels in the same way.

PTX → text without names, line information and layout.

Registers, labels and symbols are numbered by their first appearance, registers separately in every function.
"""

import hashlib
import json
import re
from typing import Any

import numpy as np

from weft.engines.bound_kernel import BoundKernel
from weft.engines.launch import Launch

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug\w*\s*\{[^}]*\}")
_LINE_INFO = re.compile(r"^[ \t]*\.(?:loc|file)\b[^\n]*$", re.MULTILINE)
_REGISTERS = re.compile(r"\.reg\s+[.\w\s]*?(%\w+)(?:<\d+>)?((?:\s*,\s*%\w+(?:<\d+>)?)*)\s*;")
_SYMBOL = re.compile(
    r"\.(?:entry|func(?:\s*\([^)]*\))?|param|shared|global|const|local)\b((?:\s+\.(?:align\s+\d+|\w+))*)\s+([A-Za-z_$][\w$]*)"
)
_TOKEN = re.compile(r'"[^"]*"|%[\w$]+|[A-Za-z_$][\w$]*|\.\w+|0[fFdDxX][0-9a-fA-F]+|\d+|\S')
_FUNCTIONS = (".entry", ".func")


def launches_digest(bound: BoundKernel) -> str:
    """Return a hash of what would be launched, and how. Nothing runs.

    Arrays count by their name, numbers by their value, a binary by its number, a kernel by its place in its binary;
    the initial values of variables are part of the launch.
    """
    binaries = {launch.binary.ptx_digest: launch.binary for launch in bound.launches}
    numbers = {digest: number for number, digest in enumerate(binaries)}
    rows: list[Any] = [["symbol", np.ascontiguousarray(value).tobytes().hex()] for value in bound.constants.values()]
    rows += [[numbers[launch.binary.ptx_digest], *_row(launch)] for launch in bound.launches]
    whole = json.dumps([[canonical_text(binary.ptx) for binary in binaries.values()], rows])
    return hashlib.sha256(whole.encode()).hexdigest()


def _row(launch: Launch) -> list[Any]:
    passed = [
        name if isinstance(value, np.ndarray) and value.ndim else repr(value)
        for name, value in zip(launch.names, launch.args, strict=True)
    ]
    kernel = list(launch.binary.entries).index(launch.entry)
    return [kernel, launch.grid, launch.block, launch.shared_bytes, passed]


def canonical_text(ptx: str) -> str:
    """Return the remaining tokens, separated by one space."""
    text = _DEBUG_SECTION.sub(" ", _COMMENT.sub(" ", ptx))
    text = _LINE_INFO.sub(" ", text)
    prefixes = {name for match in _REGISTERS.finditer(text) for name in re.findall(r"%[A-Za-z_]\w*", match[0])}
    text = _REGISTERS.sub(" ", text)
    symbols = {match[2] for match in _SYMBOL.finditer(text)}
    numbered: dict[str, str] = {}
    registers: dict[str, str] = {}
    tokens = []
    for token in _TOKEN.findall(text):
        if token in _FUNCTIONS:
            registers = {}
        if token.startswith("%"):
            if token in prefixes or token.rstrip("0123456789") in prefixes:
                token = registers.setdefault(token, f"%{len(registers)}")
        elif token in symbols or token.startswith("$L"):
            token = numbered.setdefault(token, f"n{len(numbered)}")
        tokens.append(token)
    return " ".join(tokens)
