"""Small edits of the -G build of a kernel, where every source line has instructions that belong to it alone.

A constant of the source is an operand, a comparison is a `setp`, a variable is a register. In optimised PTX a stride or
a starting value is often folded into instructions of other lines. `templates.py` lists what is tested.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.core.records import Place
from weft.ptx.module import Function

from .sites import Site, sites_of
from .templates import TEMPLATES, Change, Kind


@dataclass(frozen=True)
class Edit:
    """A changed instruction, or several of one source line that are changed together."""

    place: Place
    changes: tuple[Change, ...]
    kind: Kind
    words: str
    """What is changed, in the source's terms: `33 → 32`, `< → <=`."""
    key: tuple[int, int, int, str]
    """Identifies the edit in another build of the same source: line, instruction, operand, and what is done."""
    function: str = ""
    """The function of the PTX."""

    @property
    def ptx_line(self) -> int:
        """Return the first changed line of the PTX."""
        return self.changes[0].ptx_line

    @property
    def order(self) -> tuple[int, bool]:
        """Return its place among edits that are compiled together: those in place of one instruction are adjacent."""
        return self.ptx_line, self.changes[0].replaces


def edits_of(
    text: str, functions: Sequence[Function], files: Sequence[str], sizes: Mapping[str, int] | None = None
) -> list[Edit]:
    """Return the edits of all instructions whose line is in one of `files`; `sizes` are those of the problem."""
    lines = text.splitlines()
    counts: dict[int, int] = {}
    found: list[Edit] = []
    for function in functions:
        for site in sites_of(function, lines, files, sizes or {}):
            line = site.place.line
            counts[line] = counts.get(line, -1) + 1
            found += _edits_at(site, counts[line], function.name)
    return found


def _edits_at(site: Site, number: int, function: str) -> Iterator[Edit]:
    for template in TEMPLATES:
        for made in template(site):
            key = site.place.line, number, made.at, made.mark
            yield Edit(site.place, made.changes, made.kind, made.words, key, function)
