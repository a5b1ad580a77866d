"""Kernels with one statement dropped that orders or initialises memory, found in the source automatically."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

ORDERING = re.compile(
    r"__syncthreads\(\);|__syncwarp\((?:\w+)?\);|\b\w+\.sync\(\);|__pipeline_wait_prior\([^;]*\);"
    r'|asm volatile\("cp\.async\.wait[^;]*;\s*(?:\\n)?"[^;]*\);|(?:cp_async_wait\w*|wait_copies)(?:<\w+>)?\([^;]*\);'
)
"""A barrier or a wait that is a separate statement."""

CONSTANT = r"(?:-?CUDART_INF_F|-?INFINITY|0(?:\.0?f?)?|0u|\w+\(0\.0?f\)|-CUDART_INF_F)"
INITIALISING = re.compile(rf"(?<![\w.\]>])[\w.]+(?:\[[^;=\]]*\])+ = {CONSTANT};|wmma::fill_fragment\([^;]*\);")
"""A store of a constant to an element of an array, or to a fragment."""
INITIALISER = re.compile(r"(?<=\]) = \{(?:0\.0f)?\};")
"""An array that starts as zeros: the `= {}` goes, the declaration stays."""


@dataclass(frozen=True)
class Dropped:
    """A source with one statement removed."""

    statement: str
    line: int
    source: str
    """The whole line, as it was."""
    text: str
    kind: str
    """ordering or initialising."""

    def __str__(self) -> str:
        return f"{self.line} {self.statement.strip()}"


def drop_each(source: str) -> Iterator[Dropped]:
    """Return all sources with one statement dropped, in order. Comments and preprocessor lines stay."""
    lines = source.splitlines(keepends=True)
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if code.lstrip().startswith("#"):
            continue
        for pattern, kind in ((ORDERING, "ordering"), (INITIALISING, "initialising"), (INITIALISER, "initialising")):
            for match in pattern.finditer(code):
                changed = line[: match.start()] + ";" + line[match.end() :]
                text = "".join((*lines[:number], changed, *lines[number + 1 :]))
                yield Dropped(code[match.start() : match.end()], number + 1, line.strip(), text, kind)
