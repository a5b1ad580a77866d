"""Turns visits of basic blocks into the source lines that ran and the branches that went both ways.

A line may be compiled several times: in unrolled copies, template instances, builds for other types and masks. It ran
if one of its copies did. Code that no build contains, because a template argument excludes it, is not counted.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from os.path import abspath

import numpy as np
import numpy.typing as npt

from weft.core.records import Place, Visits, inlining_chain
from weft.ptx.passes.build_cfg import Block, Cfg
from weft.ptx.passes.find_hidden_ways import NOT_TAKEN, TAKEN, is_branch, target_of
from weft.ptx.passes.kernel_passes import KernelPasses
from weft.toolchain.cuda_headers import is_users

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

    def went(self, kernel: Kernel, passes: KernelPasses, block: Block, way: int) -> bool:
        """Whether one of a branch's successors was taken."""
        target = target_of(block, way)
        if (block.id, way) in passes.hidden_ways or target is None:
            return (block.id, way) in self.ways[kernel]
        return bool(self.blocks[kernel][target])


def cover(gathered: Gathered, kernels: Mapping[Kernel, KernelPasses], names: Mapping[str, str]) -> Coverage:
    """Return lines and branches of the kernels that ran; `names`: absolute path → the file as the user spells it."""
    lines: dict[tuple[str, int], int] = {}
    branches: dict[tuple[str, int], tuple[bool, bool]] = {}
    for kernel, passes in kernels.items():
        cfg = passes.cfg
        here: dict[tuple[str, int], int] = {}
        for block in cfg.blocks:
            runs = int(gathered.blocks[kernel][block.id])
            for place in {place for ins in block.body for place in _lines_of(ins.place)}:
                here[place] = max(here.get(place, 0), runs)
            if is_branch(block) and not _guards_trap(cfg, block):
                assert block.end is not None
                both = all(gathered.went(kernel, passes, block, way) for way in (TAKEN, NOT_TAKEN))
                for place in _lines_of(block.end.place)[:1]:
                    known, loops = branches.get(place, (False, False))
                    branches[place] = (known or both, loops or any(way <= block.id for way in block.targets))
        for place, runs in here.items():
            lines[place] = lines.get(place, 0) + runs
    return Coverage(
        tuple(sorted(Line(names.get(file, file), number, runs) for (file, number), runs in lines.items())),
        tuple(sorted(Branch(names.get(file, file), line, *seen) for (file, line), seen in branches.items())),
    )


@cache
def _lines_of(place: Place | None) -> tuple[tuple[str, int], ...]:
    """Return the user's line, and the lines it was inlined into."""
    found = ((abspath(at.file), at.line) for at in inlining_chain(place) if at.line and is_users(at.file))
    return tuple(dict.fromkeys(found))


def _guards_trap(cfg: Cfg, block: Block) -> bool:
    """Whether one side of a branch only ends the launch: a failed assertion."""
    for way in block.successors:
        target = cfg.blocks[way]
        if target.end is not None and target.end.facts.control == "trap":
            return True
        if any(ins.facts.control == "call" for ins in target.body):
            return True
    return False
