"""Turns visits of basic blocks into the source lines that ran and the branches that went both ways.

A line may be compiled several times: in unrolled copies, template instances, builds for other types and masks. It ran
if one of its copies did. Code that no build contains, because a template argument excludes it, is not counted.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from os.path import abspath

import numpy as np
import numpy.typing as npt

from weft.core.records import Visits
from weft.ptx.passes.find_hidden_ways import NOT_TAKEN, TAKEN
from weft.toolchain.cuda_headers import is_users

from .code_map import BranchCode, Chain, CodeMap
from .records import Branch, Coverage, Line

Kernel = tuple[str, str]
"""Digest of the PTX, and the kernel's name in it."""


class Gathered:
    """Visits of all runs so far, by kernel."""

    def __init__(self) -> None:
        self.blocks: dict[Kernel, npt.NDArray[np.int64]] = {}
        self.ways: dict[Kernel, set[tuple[int, int]]] = {}

    def add(self, visits: Iterable[Visits]) -> None:
        """Add the visits of a run."""
        for each in visits:
            self._count((each.ptx_digest, each.entry), np.array(each.blocks, np.int64), each.ways)

    def merge(self, other: "Gathered") -> None:
        """Add what other runs of the same kernels gathered."""
        for kernel, runs in other.blocks.items():
            self._count(kernel, runs, other.ways[kernel])

    def _count(self, kernel: Kernel, runs: npt.NDArray[np.int64], ways: Iterable[tuple[int, int]]) -> None:
        self.blocks[kernel] = self.blocks[kernel] + runs if kernel in self.blocks else runs
        self.ways.setdefault(kernel, set()).update(ways)

    def went(self, kernel: Kernel, block: int, branch: BranchCode, way: int) -> bool:
        """Whether one of a branch's paths was taken."""
        target = branch.targets[way]
        return (block, way) in self.ways[kernel] if target is None else bool(self.blocks[kernel][target])


def cover(gathered: Gathered, kernels: Mapping[Kernel, CodeMap], names: Mapping[str, str]) -> Coverage:
    """Return lines and branches of the kernels that ran; `names`: absolute path → the file as the user spells it."""
    lines: dict[tuple[str, int], int] = {}
    branches: dict[tuple[str, int], tuple[bool, bool]] = {}
    for kernel, code in kernels.items():
        here: dict[tuple[str, int], int] = {}
        for number, block in enumerate(code):
            runs = int(gathered.blocks[kernel][number])
            for place in {place for chain in block.places for place in _lines_of(chain)}:
                here[place] = max(here.get(place, 0), runs)
            if block.branch is not None:
                both = all(gathered.went(kernel, number, block.branch, way) for way in (TAKEN, NOT_TAKEN))
                for place in _lines_of(block.branch.place)[:1]:
                    known, loops = branches.get(place, (False, False))
                    branches[place] = (known or both, loops or block.branch.loops)
        for place, runs in here.items():
            lines[place] = lines.get(place, 0) + runs
    return Coverage(
        tuple(sorted(Line(names.get(file, file), number, runs) for (file, number), runs in lines.items())),
        tuple(sorted(Branch(names.get(file, file), line, *seen) for (file, line), seen in branches.items())),
    )


@cache
def _lines_of(chain: Chain) -> tuple[tuple[str, int], ...]:
    """Return the user's line, and the lines it was inlined into."""
    found = ((abspath(file), line) for file, line in chain if line and is_users(file))
    return tuple(dict.fromkeys(found))
