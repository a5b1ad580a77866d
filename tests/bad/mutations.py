"""Ladder kernels made bad by one change: `tests/bad/<property>/mutations.toml`, a table `[name]` per mutation.

    rung    = "fa1"                     a file of src/weft/kernels
    old     = "…"                       occurs in it exactly once
    new     = "…"                       replaces it: the bug
    common  = [["old", "new"], …]       optional: changes of the bad kernel and of its twin (naming regions, say)
    finds   = "M105"                    the code
    at      = "…"                       text of the only line, after the change, that has the finding
    cta, warp, lanes, name              optional: as in the finding (`lanes` is the mask)
    sizes, defines                      optional: of the kernel file, for both
The twin is the rung with `common` only; it gives no finding.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import weft.kernels
from weft.core.records import Finding
from weft.engines.kernel_file import KernelFile, load

BAD = Path(__file__).parent
KERNELS = Path(weft.kernels.__file__).parent


@dataclass(frozen=True)
class Mutation:
    """One row."""

    id: str
    rung: str
    old: str
    new: str
    finds: str
    at: str
    common: tuple[tuple[str, str], ...] = ()
    cta: tuple[int, int, int] | None = None
    warp: int | None = None
    lanes: int | None = None
    name: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)

    def twin(self, folder: Path) -> KernelFile:
        """The correct kernel, written to `folder`."""
        return self._written(folder, "twin", self.common)

    def bad(self, folder: Path) -> KernelFile:
        """The kernel with the bug."""
        return self._written(folder, "bad", (*self.common, (self.old, self.new)))

    def explains(self, finding: Finding, kernel: KernelFile) -> bool:
        """Whether this is the finding that the row expects."""
        who = ((self.cta, finding.cta), (self.warp, finding.warp), (self.lanes, finding.lanes))
        return (
            finding.code == self.finds
            and self.at in line_of(finding, Path(kernel.path))
            and all(expected is None or expected == found for expected, found in who)
            and self.name in finding.name
        )

    def _written(self, folder: Path, kind: str, changes: tuple[tuple[str, str], ...]) -> KernelFile:
        text = (KERNELS / f"{self.rung}.cu").read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{self.id}: {text.count(old)} times in {self.rung}.cu: {old}"
            text = text.replace(old, new)
        path = folder / f"{self.rung}_{kind}.cu"
        path.write_text(text)
        return load(path, defines=self.defines)


def line_of(finding: Finding, path: Path) -> str:
    """Return the text of a finding's line in `path`, not in a header that was inlined."""
    place = finding.place
    while place is not None and Path(place.file).name != path.name:
        place = place.inlined_at
    return path.read_text().splitlines()[place.line - 1] if place is not None else ""


def mutations(folder: str) -> list[Mutation]:
    """Return the rows of `tests/bad/<folder>/mutations.toml`."""
    table = tomllib.loads((BAD / folder / "mutations.toml").read_text())
    rows = []
    for name, row in table.items():
        pairs = tuple((old, new) for old, new in row.pop("common", ()))
        cta = row.pop("cta", None)
        rows.append(Mutation(id=name, common=pairs, cta=tuple(cta) if cta else None, **row))
    return rows
