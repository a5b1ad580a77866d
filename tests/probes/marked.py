"""Kernels that mark what is found in them: the comment `// finds CODE fact=value …` is on the line of the finding.

Facts: `warp`, `lanes` (the mask, in hexadecimal) and `level` (error unless given). A line that ends in `// other` has
the finding's other access.
"""

from dataclasses import dataclass
from pathlib import Path

from weft.core.records import Finding, Place


@dataclass(frozen=True)
class Mark:
    """The expected finding of a file."""

    code: str
    line: int
    other: int
    facts: dict[str, str]

    def fits(self, finding: Finding, path: Path) -> bool:
        """Whether this is the expected finding."""
        facts = self.facts
        return (
            (finding.code, line_in(path, finding.place)) == (self.code, self.line)
            and (not self.other or line_in(path, finding.other) == self.other)
            and finding.level == facts.get("level", "error")
            and finding.warp == int(facts.get("warp", finding.warp))
            and finding.lanes == int(facts.get("lanes", hex(finding.lanes)), 16)
        )


def mark_of(path: Path) -> Mark:
    """Return the mark of a file."""
    lines = path.read_text().splitlines()
    ((number, text),) = [(number, line) for number, line in enumerate(lines, 1) if "// finds " in line]
    code, *facts = text.split("// finds ")[1].split()
    others = [number for number, line in enumerate(lines, 1) if line.endswith("// other")]
    return Mark(code, number, others[0] if others else 0, dict(fact.split("=") for fact in facts))


def line_in(path: Path, place: Place | None) -> int:
    """Return the line of a place in the kernel's own file, not in a header that was inlined."""
    while place is not None and Path(place.file).name != path.name:
        place = place.inlined_at
    return place.line if place is not None else 0
