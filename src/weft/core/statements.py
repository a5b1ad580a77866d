"""Finds the statements of a kernel's text that contain a line: by braces in CUDA, by indentation in Triton."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path

_NOISE = re.compile(r'//.*|/\*.*?\*/|"(?:\\.|[^"\\])*"')
_PYTHON_COMMENT = re.compile(r"#.*")
_HEAD = re.compile(r"\s*(?:for|while|if|else|elif|do|switch)\b")
_LOOP = re.compile(r"\s*(?:for|while|do)\b")


class Statements:
    """The statements of one file. Lines are counted from 1; a statement is named by its first line."""

    def __init__(self, path: str) -> None:
        self.lines = _read(path)
        self._noise = _PYTHON_COMMENT if path.endswith(".py") else _NOISE
        self._chains = _by_indentation(self.lines) if path.endswith(".py") else _by_braces(self.lines)

    def code(self, line: int) -> str:
        """Return a line without its comments; empty if there is no such line."""
        return self._noise.sub("", self.lines[line - 1]) if 0 < line <= len(self.lines) else ""

    def chain(self, line: int) -> tuple[int, ...]:
        """Return the statements that contain a line, outermost first; the last is the line's own statement."""
        return self._chains[line - 1] if 0 < line <= len(self._chains) else ()

    def loops(self, line: int) -> tuple[int, ...]:
        """Return the loops that contain a line, outermost first."""
        return tuple(at for at in self.chain(line) if at != line and _LOOP.match(self.lines[at - 1]))

    def is_head(self, line: int) -> bool:
        """Return whether a line begins with a condition or a loop."""
        return bool(0 < line <= len(self.lines) and _HEAD.match(self.lines[line - 1]))

    def last(self, statement: int) -> int:
        """Return the line on which a statement ends."""
        return max(number for number, chain in enumerate(self._chains, 1) if statement in chain)

    def apart(self, line: int, other: int) -> int:
        """Return the largest statement that contains `line` and not `other`; 0 if there is none."""
        others = set(self.chain(other))
        return next((at for at in self.chain(line) if at not in others), 0)


def statements_of(path: str) -> Statements:
    """Return the statements of a file; it is read again only if it has changed."""
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError:
        changed = 0
    return _statements(path, changed)


@functools.lru_cache(maxsize=16)
def _statements(path: str, changed: int) -> Statements:
    return Statements(path)


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _by_indentation(lines: Sequence[str]) -> list[tuple[int, ...]]:
    chains: list[tuple[int, ...]] = []
    held: list[tuple[int, int]] = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            indent = len(line) - len(line.lstrip())
            held = [(at, wide) for at, wide in held if wide < indent] + [(number, indent)]
        chains.append(tuple(at for at, _ in held))
    return chains


def _by_braces(lines: Sequence[str]) -> list[tuple[int, ...]]:
    """Return each line's statements by braces; a head without braces contains the next statement."""
    chains: list[tuple[int, ...]] = []
    blocks: list[tuple[int, ...]] = []
    heads: list[int] = []
    start, round_brackets = 0, 0
    for number, line in enumerate(lines, 1):
        code = _NOISE.sub("", line)
        if not code.strip() or code.lstrip().startswith("#"):
            chains.append(_flat(blocks, heads))
            continue
        start = start or number
        chains.append(_flat(blocks, [*heads, start]))
        is_head = bool(_HEAD.match(code)) and start == number
        for letter in code:
            round_brackets += (letter == "(") - (letter == ")")
            if letter == "{":
                blocks.append((*heads, start))
                heads, start = [], 0
            elif letter == "}" and blocks:
                blocks.pop()
                heads, start, is_head = [], 0, False
            elif letter == ";" and round_brackets == 0:
                heads, start, is_head = [], 0, False
            elif letter not in " \t" and not start:
                start = number
        if is_head and start and round_brackets == 0:
            heads, start = [*heads, start], 0
    return chains


def _flat(blocks: Sequence[tuple[int, ...]], rest: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(at for block in (*blocks, tuple(rest)) for at in block))
